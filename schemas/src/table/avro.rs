//! A table's Avro schema: written canonically, read strictly.
//!
//! The text is compact JSON with its members in the order of the structs below, so that the same
//! table always gives the same bytes, whatever JSON library a build uses. Reading accepts any
//! formatting (a registry may print it anew) but no other content: a property that is not ours,
//! a type that is not the carrier's, a position out of order are refused.

use serde::{Deserialize, Serialize};

use super::{Carrier, Column, Identity, Table};
use crate::{fingerprint, names};

/// The text is no schema of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the schema of a table: {0}")]
pub struct SchemaError(String);

const ABSENT: &str = "walbraid.Absent";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordForm {
    r#type: String,
    name: String,
    namespace: String,
    doc: String,
    pg_schema: String,
    pg_table: String,
    pg_identity: IdentityForm,
    fields: Vec<FieldForm>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum IdentityForm {
    Default,
    Nothing,
    Full,
    Index,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldForm {
    name: String,
    r#type: (String, String, AbsentForm),
    doc: String,
    pg_column: String,
    pg_type: String,
    pg_type_modifier: i32,
    pg_key: bool,
    pg_position: usize,
}

/// The enum is defined in the first field, and named in the others.
#[derive(Serialize, Deserialize, PartialEq)]
#[serde(untagged)]
enum AbsentForm {
    Named(String),
    Defined(EnumForm),
}

#[derive(Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct EnumForm {
    r#type: String,
    name: String,
    namespace: String,
    symbols: (String, String),
}

impl AbsentForm {
    fn at(position: usize) -> AbsentForm {
        if position > 0 {
            return AbsentForm::Named(ABSENT.to_owned());
        }
        AbsentForm::Defined(EnumForm {
            r#type: "enum".to_owned(),
            name: "Absent".to_owned(),
            namespace: "walbraid".to_owned(),
            symbols: ("UNCHANGED_TOAST".to_owned(), "NOT_SENT".to_owned()),
        })
    }
}

impl Table {
    /// The table's Avro schema as it is registered.
    pub fn to_avro(&self) -> String {
        let fields = self.columns.iter().enumerate();
        let form = RecordForm {
            r#type: "record".to_owned(),
            name: names::escape(&self.name),
            namespace: namespace(&self.schema),
            doc: format!("Table {}.{} of the publisher.", self.schema, self.name),
            pg_schema: self.schema.clone(),
            pg_table: self.name.clone(),
            pg_identity: match self.identity {
                Identity::Default => IdentityForm::Default,
                Identity::Nothing => IdentityForm::Nothing,
                Identity::Full => IdentityForm::Full,
                Identity::Index => IdentityForm::Index,
            },
            fields: fields
                .map(|(position, column)| field(position, column))
                .collect(),
        };
        match serde_json::to_string(&form) {
            Ok(text) => text,
            Err(error) => panic!("a table's schema cannot be written as JSON: {error}"),
        }
    }

    /// The table that a registered schema describes.
    pub fn from_avro(text: &str) -> Result<Table, SchemaError> {
        let refused = |reason: String| Err(SchemaError(reason));
        if let Err(error) = apache_avro::Schema::parse_str(text) {
            return refused(error.to_string());
        }
        let form: RecordForm = match serde_json::from_str(text) {
            Ok(form) => form,
            Err(error) => return refused(error.to_string()),
        };
        let mut columns = Vec::with_capacity(form.fields.len());
        for (position, field) in form.fields.into_iter().enumerate() {
            columns.push(column(position, field)?);
        }
        let table = Table {
            schema: form.pg_schema,
            name: form.pg_table,
            identity: match form.pg_identity {
                IdentityForm::Default => Identity::Default,
                IdentityForm::Nothing => Identity::Nothing,
                IdentityForm::Full => Identity::Full,
                IdentityForm::Index => Identity::Index,
            },
            columns,
        };
        if form.r#type != "record"
            || form.name != names::escape(&table.name)
            || form.namespace != namespace(&table.schema)
        {
            return refused(format!(
                "the record's name \"{}\" is not its table's",
                form.name
            ));
        }
        Ok(table)
    }

    /// The schema's fingerprint, as [`crate::TableRef::fingerprint`] holds it. Any change that
    /// [`Table`] can express changes it.
    pub fn fingerprint(&self) -> i64 {
        fingerprint::of(&self.to_avro())
    }
}

fn namespace(schema: &str) -> String {
    format!("pg.{}", names::escape(schema))
}

fn avro_type(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::Bool => "boolean",
        Carrier::Int2 | Carrier::Int4 => "int",
        Carrier::Int8 => "long",
        Carrier::Float4 => "float",
        Carrier::Float8 => "double",
        Carrier::Text | Carrier::Other => "string",
        Carrier::Bytea => "bytes",
    }
}

fn field(position: usize, column: &Column) -> FieldForm {
    FieldForm {
        name: names::escape(&column.name),
        r#type: (
            "null".to_owned(),
            avro_type(column.carrier).to_owned(),
            AbsentForm::at(position),
        ),
        doc: column.type_name.clone(),
        pg_column: column.name.clone(),
        pg_type: column.type_name.clone(),
        pg_type_modifier: column.type_modifier,
        pg_key: column.key,
        pg_position: position,
    }
}

fn column(position: usize, field: FieldForm) -> Result<Column, SchemaError> {
    let carrier = Carrier::of(&field.pg_type);
    let (null, value, absent) = &field.r#type;
    let typed =
        null == "null" && value == avro_type(carrier) && *absent == AbsentForm::at(position);
    if !typed || field.name != names::escape(&field.pg_column) || field.pg_position != position {
        return Err(SchemaError(format!(
            "field \"{}\" is not its column's",
            field.name
        )));
    }
    Ok(Column {
        name: field.pg_column,
        type_name: field.pg_type,
        type_modifier: field.pg_type_modifier,
        key: field.pg_key,
        carrier,
    })
}
