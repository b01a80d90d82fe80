//! Schemas into the registry: the envelope's, and one for each shape of each table.
//!
//! Owns the requests to the registry and the sorting of its answers. Keeps nothing: an error is
//! never remembered, and a shape is asked for once by the assembler that announces it.
//!
//! Our subjects get compatibility NONE, because a table may change in any way and each record names
//! the exact schema it was written with. Some registries know a subject's setting only once the
//! subject exists, so it is set before and, where that failed, after the first registration.
//!
//! What a registry gives out is read back: one that folds schemas which differ in a property alone
//! (a key flag, a PostgreSQL type) would hand a reader the wrong one.

use reqwest::{Client, ClientBuilder, RequestBuilder, StatusCode};
use schema_registry_converter::async_impl::schema_registry::{
    SrSettings, get_all_subjects, get_schema_by_id, post_schema,
};
use schema_registry_converter::error::SRCError;
use schema_registry_converter::schema_registry_common::{SchemaType, SuppliedSchema};
use walbraid_schemas::{Stop, StopKind, Table, TableRef, envelope, fingerprint, names};

use crate::config;
use crate::metrics::Cause;
use crate::policy::Failure;

/// What helps where something else answers.
const PATH_MISSING: &str = "Is a path missing in \"registry.url\", such as /apis/ccompat/v7?";

const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";

/// The registry, as one topic uses it.
pub(crate) struct SchemaRegistry {
    config: config::Registry,
    settings: SrSettings,
    client: Client,
    topic: String,
}

impl SchemaRegistry {
    /// A client of the registry for the subjects of `topic`. Nothing is asked yet.
    pub(crate) fn new(config: &config::Registry, topic: &str) -> Result<SchemaRegistry, Stop> {
        let urls: Vec<&str> = config
            .urls
            .iter()
            .map(|url| url.trim_end_matches('/'))
            .collect();
        let Some((first, others)) = urls.split_first() else {
            return Err(Stop::new(
                StopKind::Usage,
                "no address of a schema registry is configured",
            ));
        };
        let mut builder = SrSettings::new_builder((*first).to_owned());
        for url in others {
            builder.add_url((*url).to_owned());
        }
        builder.set_timeout(timeout(config));
        if let Some(user) = &config.user {
            builder.set_basic_authorization(user, config.password.as_deref());
        }
        let settings = builder.build_with(http(config)?).map_err(|error| {
            Stop::new(StopKind::Usage, format!("schema registry: {}", error.error))
        })?;
        let client = http(config)?
            .timeout(timeout(config))
            .build()
            .map_err(|error| Stop::new(StopKind::Usage, format!("schema registry: {error}")))?;
        let topic = topic.to_owned();
        Ok(SchemaRegistry {
            config: config.clone(),
            settings,
            client,
            topic,
        })
    }

    /// Registers the envelope's schema and returns its id.
    pub(crate) async fn envelope(&self) -> Result<i32, Failure> {
        self.register(&names::envelope_subject(&self.topic), envelope::SCHEMA)
            .await
    }

    /// Registers a table's schema.
    pub(crate) async fn table(&self, table: &Table) -> Result<TableRef, Failure> {
        let subject = names::table_subject(&self.topic, &table.schema, &table.name);
        let schema = table.to_avro();
        let schema_id = self.register(&subject, &schema).await?;
        self.read_back(&subject, schema_id, table).await?;
        Ok(TableRef {
            schema_id,
            fingerprint: fingerprint::of(&schema),
        })
    }

    /// Asks something that every registry can answer.
    pub(crate) async fn reach(&self) -> Result<(), Failure> {
        get_all_subjects(&self.settings)
            .await
            .map_err(|error| failure(&error, Asked::Subjects))
            .map(|_| ())
    }

    /// Removes every subject of the topic, and returns their names.
    pub(crate) async fn remove_subjects(&self) -> Result<Vec<String>, Failure> {
        let failed = |error: SRCError| failure(&error, Asked::Subjects);
        let envelope = names::envelope_subject(&self.topic);
        let tables = format!("{}.", self.topic);
        let of_table = |subject: &str| {
            subject
                .strip_prefix(&tables)
                .is_some_and(|rest| rest.split('.').count() == 2)
        };
        let subjects = get_all_subjects(&self.settings).await.map_err(failed)?;
        let ours = subjects
            .into_iter()
            .filter(|s| *s == envelope || of_table(s));
        let mut removed = Vec::new();
        for subject in ours {
            let delete = |address: String| self.client.delete(address);
            self.ask("subjects", &subject, delete)
                .await
                .map_err(|problem| {
                    let message = format!("subject \"{subject}\" could not be removed: {problem}");
                    Failure::Definite(Stop::new(StopKind::RegistryUnreachable, message))
                })?;
            removed.push(subject);
        }
        Ok(removed)
    }

    async fn register(&self, subject: &str, schema: &str) -> Result<i32, Failure> {
        let compatible = self.set_compatibility(subject).await;
        let registered = self.post(subject, schema).await?;
        if compatible.is_err()
            && let Err(problem) = self.set_compatibility(subject).await
        {
            tracing::warn!(
                "compatibility of subject \"{subject}\" could not be set to NONE: {problem}"
            );
        }
        Ok(registered)
    }

    async fn post(&self, subject: &str, schema: &str) -> Result<i32, Failure> {
        let supplied = SuppliedSchema::new(None, SchemaType::Avro, schema.to_owned());
        let registered = post_schema(&self.settings, subject.to_owned(), supplied)
            .await
            .map_err(|error| failure(&error, Asked::Registration(subject)))?;
        i32::try_from(registered.id).map_err(|_| {
            let message = format!("schema registry gave out id {}", registered.id);
            Failure::Definite(Stop::new(StopKind::RegistryIncompatible, message))
        })
    }

    async fn read_back(&self, subject: &str, id: i32, table: &Table) -> Result<(), Failure> {
        let registered = get_schema_by_id(id.unsigned_abs(), &self.settings)
            .await
            .map_err(|error| failure(&error, Asked::Schema(subject)))?;
        if Table::from_avro(&registered.schema).is_ok_and(|read| read == *table) {
            return Ok(());
        }
        let message = format!("schema registry returns another schema for subject \"{subject}\"");
        Err(Failure::Definite(
            Stop::new(StopKind::RegistryIncompatible, message)
                .detail(format!(
                    "Schema id {id} is not the one that was registered."
                ))
                .hint("The registry must tell schemas apart that differ in a property only."),
        ))
    }

    async fn set_compatibility(&self, subject: &str) -> Result<(), String> {
        let put = |address: String| {
            self.client
                .put(address)
                .header("content-type", CONTENT_TYPE)
                .body(r#"{"compatibility": "NONE"}"#)
        };
        self.ask("config", subject, put).await
    }

    /// A request about a subject that the converter has not, to each address in turn.
    async fn ask(
        &self,
        collection: &str,
        subject: &str,
        request: impl Fn(String) -> RequestBuilder,
    ) -> Result<(), String> {
        let mut problem = String::new();
        for url in &self.config.urls {
            let url = url.trim_end_matches('/');
            let mut request = request(format!("{url}/{collection}/{}", escaped(subject)));
            if let Some(user) = &self.config.user {
                request = request.basic_auth(user, self.config.password.as_deref());
            }
            match request.send().await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                Ok(answer) => problem = answer.status().to_string(),
                Err(error) => problem = error.without_url().to_string(),
            }
        }
        Err(problem)
    }
}

fn timeout(config: &config::Registry) -> std::time::Duration {
    std::time::Duration::from_millis(config.timeout_ms.max(1))
}

fn http(config: &config::Registry) -> Result<ClientBuilder, Stop> {
    let builder = Client::builder().user_agent("walbraid");
    let Some(path) = &config.ca_file else {
        return Ok(builder);
    };
    let unusable = |problem: String| {
        let message = format!(
            "certificate file \"{}\" of the registry: {problem}",
            path.display()
        );
        Stop::new(StopKind::Usage, message)
    };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let certificates =
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error.to_string()))?;
    Ok(certificates
        .into_iter()
        .fold(builder, ClientBuilder::add_root_certificate))
}

/// A subject as one segment of a path.
fn escaped(subject: &str) -> String {
    let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    subject
        .bytes()
        .map(|b| {
            if kept(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// What the registry was asked for.
#[derive(Debug, Clone, Copy)]
enum Asked<'a> {
    /// Its subjects: every registry has a list of them.
    Subjects,
    /// To take a schema under a subject: every registry has a place for that.
    Registration(&'a str),
    /// The schema that it took.
    Schema(&'a str),
}

fn failure(error: &SRCError, asked: Asked<'_>) -> Failure {
    let cause = error.cause.as_deref().unwrap_or(&error.error);
    let transient = |message: String, hint: Option<&str>| {
        let mut stop = Stop::new(StopKind::RegistryUnreachable, message);
        stop.hint = hint.map(str::to_owned);
        let cause = Cause::Registry;
        Failure::Transient { cause, stop }
    };
    let definite = |kind, message: String, hint: &str| {
        let detail = format!("The registry says: {}.", cause.trim_end_matches('.'));
        Failure::Definite(Stop::new(kind, message).detail(detail).hint(hint))
    };
    match (status(error), asked) {
        (None, _) if error.retriable => transient(
            format!("schema registry cannot be reached: {cause}"),
            Some("Check the address in \"registry.url\", and that the registry runs there."),
        ),
        // A proxy that is being mended may answer in the registry's place.
        (None, _) => transient(
            format!("schema registry answers what is not of its interface: {cause}"),
            Some(PATH_MISSING),
        ),
        (Some(status), _) if status.is_server_error() || passing(status) => {
            transient(format!("schema registry answers {status}"), None)
        }
        (Some(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)), _) => definite(
            StopKind::RegistryUnreachable,
            format!("schema registry answers {status}"),
            "Check \"registry.username\" and \"registry.password\", and let that user read and \
             register schemas of the topic's subjects.",
        ),
        (
            Some(status @ (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)),
            Asked::Subjects | Asked::Registration(_),
        ) => definite(
            StopKind::RegistryUnreachable,
            format!("no schema registry at the address of \"registry.url\": it answers {status}"),
            PATH_MISSING,
        ),
        (Some(status), Asked::Subjects) => definite(
            StopKind::RegistryUnreachable,
            format!("schema registry refuses to list its subjects: {status}"),
            "The registry must have Confluent's interface.",
        ),
        (Some(status), Asked::Registration(subject) | Asked::Schema(subject)) => definite(
            StopKind::RegistryIncompatible,
            format!("schema registry refuses subject \"{subject}\": {status}"),
            match status {
                StatusCode::CONFLICT => "Set the subject's compatibility to NONE.",
                _ => "The registry must take schemas of the topic's subjects.",
            },
        ),
    }
}

fn passing(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT
}

/// The HTTP status in an error of the client library, which tells it in words only.
fn status(error: &SRCError) -> Option<StatusCode> {
    let (_, words) = error.error.split_once("failed with status ")?;
    StatusCode::from_bytes(words.get(..3)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::policy;

    fn answer(status: Option<&str>, asked: Asked<'_>) -> Failure {
        let error = match status {
            Some("") => SRCError::new("could not parse to list of subjects", None, false),
            Some(status) => SRCError::new(
                &format!("HTTP request to schema registry failed with status {status}"),
                None,
                false,
            ),
            None => SRCError::new("http call to schema registry failed", None, true),
        };
        failure(&error, asked)
    }

    #[test]
    fn what_passes_is_tried_again_and_what_is_refused_stops() {
        let check = |status, expected: Result<(), StopKind>| {
            let found = match answer(status, Asked::Registration("t.public.a")) {
                Failure::Transient { .. } => Ok(()),
                Failure::Definite(stop) => Err(stop.kind),
                Failure::Shutdown => panic!("{status:?}"),
            };
            assert_eq!(found, expected, "{status:?}");
        };
        check(None, Ok(()));
        check(Some("500 Internal Server Error"), Ok(()));
        check(Some("503 Service Unavailable"), Ok(()));
        check(Some("429 Too Many Requests"), Ok(()));
        check(Some("409 Conflict"), Err(StopKind::RegistryIncompatible));
        check(
            Some("422 Unprocessable Entity"),
            Err(StopKind::RegistryIncompatible),
        );
        check(Some("401 Unauthorized"), Err(StopKind::RegistryUnreachable));
        check(Some("404 Not Found"), Err(StopKind::RegistryUnreachable));
    }

    #[test]
    fn what_is_no_registry_is_asked_for_its_path() {
        let check = |status, asked, kind, words: Option<&str>| {
            let stop = policy::once(answer(status, asked));
            let hint = stop.hint.as_deref().unwrap_or_default();
            assert_eq!(stop.kind, kind, "{stop}");
            match words {
                Some(words) => assert!(hint.contains(words), "{stop}"),
                None => assert!(!hint.contains("path"), "{stop}"),
            }
        };
        let (away, subject) = (StopKind::RegistryUnreachable, "t.public.a");
        let lost = StopKind::RegistryIncompatible;
        check(
            Some("404 Not Found"),
            Asked::Subjects,
            away,
            Some("/apis/ccompat/v7"),
        );
        check(Some(""), Asked::Subjects, away, Some("/apis/ccompat/v7"));
        check(
            Some("405 Not Allowed"),
            Asked::Registration(subject),
            away,
            Some("path"),
        );
        check(Some("404 Not Found"), Asked::Schema(subject), lost, None);
        check(None, Asked::Subjects, away, Some("\"registry.url\""));
        check(Some("503 Service Unavailable"), Asked::Subjects, away, None);
    }

    #[test]
    fn a_subject_is_one_segment_of_a_path() {
        assert_eq!(
            escaped("walbraid.shop.public.a_x002E_b"),
            "walbraid.shop.public.a_x002E_b"
        );
        assert_eq!(escaped("a/b ü"), "a%2Fb%20%C3%BC");
    }
}
