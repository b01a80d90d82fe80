//! The shop: its tables, its first stock, and what must always be true of its money.
//!
//! Owns the SQL of both sides, which is the same. Small on purpose and varied on purpose: foreign
//! keys, hot rows (tills, the first products), wide rows that are stored out of line, rows that are
//! deleted, a table without a key, an enum, numerics, JSON, bytes, arrays, times.
//!
//! **Money is neither made nor lost.** All money lies with customers or in tills, and every cent in
//! a till is a payment. [`INVARIANT`] asks for all of it in one statement, so in one snapshot: two
//! tables of one transaction seen apart would break it.

use walbraid_schemas::{Stop, StopKind};

use super::crowd::SHOPPERS;
use crate::config::Config;
use crate::output::line;
use crate::session::{self, OrStop, Session};

/// The schema that holds everything of the demo, on both sides.
pub(super) const SCHEMA: &str = "walbraid_demo";
/// The publication on the publisher.
pub(super) const PUBLICATION: &str = "walbraid_demo";

/// Customers at the start.
pub(super) const CUSTOMERS: i32 = 500;
/// Products at the start.
pub(super) const PRODUCTS: i32 = 200;
/// Tills.
pub(super) const TILLS: i32 = 4;
/// All money there is.
pub(super) const MONEY_CENTS: i64 = CUSTOMERS as i64 * 1_000_000;

/// A table and how its rows are told apart.
pub(super) struct Table {
    /// Its name, without the schema.
    pub(super) name: &'static str,
    /// Its key, or nothing.
    pub(super) key: &'static str,
}

/// Every table, in the order in which people look at them.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "customer",
        key: "id",
    },
    Table {
        name: "product",
        key: "id",
    },
    Table {
        name: "till",
        key: "id",
    },
    Table {
        name: "purchase",
        key: "id",
    },
    Table {
        name: "purchase_line",
        key: "purchase_id, line",
    },
    Table {
        name: "payment",
        key: "purchase_id",
    },
    Table {
        name: "visit",
        key: "",
    },
    Table {
        name: "shopper",
        key: "id",
    },
    Table {
        name: "probe",
        key: "id",
    },
];

/// Makes the tables, empty.
const CREATE: &str = "
CREATE SCHEMA walbraid_demo;
COMMENT ON SCHEMA walbraid_demo IS 'walbraid demo: may be dropped';
SET search_path = walbraid_demo;
CREATE TYPE purchase_state AS ENUM ('placed', 'paid', 'sent');
CREATE TABLE customer (
    id            int         PRIMARY KEY,
    name          text        NOT NULL,
    balance_cents bigint      NOT NULL CHECK (balance_cents >= 0),
    tags          text[]      NOT NULL DEFAULT '{}',
    notes         jsonb       NOT NULL DEFAULT '{}',
    since         date        NOT NULL DEFAULT current_date
);
CREATE TABLE product (
    id          int           PRIMARY KEY,
    name        text          NOT NULL UNIQUE,
    price_cents bigint        NOT NULL,
    stock       int           NOT NULL,
    weight_kg   numeric(10,3),
    rating      float8,
    description text          NOT NULL
);
ALTER TABLE product ALTER COLUMN description SET STORAGE EXTERNAL;
CREATE TABLE till (
    id            int    PRIMARY KEY,
    balance_cents bigint NOT NULL,
    sales         bigint NOT NULL
);
CREATE TABLE purchase (
    id          bigint         PRIMARY KEY,
    customer_id int            NOT NULL REFERENCES customer,
    total_cents bigint         NOT NULL,
    state       purchase_state NOT NULL,
    placed      timestamptz    NOT NULL
);
CREATE TABLE purchase_line (
    purchase_id bigint NOT NULL REFERENCES purchase,
    line        int    NOT NULL,
    product_id  int    NOT NULL REFERENCES product,
    quantity    int    NOT NULL,
    price_cents bigint NOT NULL,
    PRIMARY KEY (purchase_id, line)
);
CREATE TABLE payment (
    purchase_id  bigint PRIMARY KEY REFERENCES purchase,
    till_id      int    NOT NULL REFERENCES till,
    amount_cents bigint NOT NULL,
    receipt      bytea  NOT NULL
);
CREATE TABLE visit (
    customer_id int,
    page        text        NOT NULL,
    took        interval,
    at          timestamptz NOT NULL
);
CREATE TABLE shopper (
    id   int         PRIMARY KEY,
    done bigint      NOT NULL,
    at   timestamptz NOT NULL
);
CREATE TABLE probe (
    id   int    PRIMARY KEY,
    beat bigint NOT NULL
);
RESET search_path;
";

/// Publishes them, in a form that every version knows.
const PUBLISH: &str = "
CREATE PUBLICATION walbraid_demo FOR TABLE
    walbraid_demo.customer, walbraid_demo.product, walbraid_demo.till, walbraid_demo.purchase,
    walbraid_demo.purchase_line, walbraid_demo.payment, walbraid_demo.visit,
    walbraid_demo.shopper, walbraid_demo.probe;
";

/// Removes all of it.
const UNPUBLISH: &str = "DROP PUBLICATION IF EXISTS walbraid_demo;";
/// Removes all of it.
const DROP: &str = "DROP SCHEMA IF EXISTS walbraid_demo CASCADE;";

/// Makes the tables on both sides, where they are not there already.
pub(super) async fn open(config: &Config) -> Result<(), Stop> {
    refuse_foreign(config).await?;
    let publisher = session::publisher(config, "walbraid demo").await?;
    let subscriber = session::subscriber(config, "walbraid demo").await?;
    if comment(&subscriber).await?.is_none() {
        execute(&subscriber, CREATE).await?;
    }
    // Together: a publisher with the schema has the publication.
    if comment(&publisher).await?.is_none() {
        execute(&publisher, &format!("BEGIN; {CREATE} {PUBLISH} COMMIT;")).await?;
    }
    line(format_args!(
        "schema {SCHEMA} is on both sides, publication {PUBLICATION} on the publisher"
    ));
    Ok(())
}

/// Removes the tables from both sides.
pub(super) async fn close(config: &Config) -> Result<(), Stop> {
    let publisher = session::publisher(config, "walbraid demo").await?;
    let subscriber = session::subscriber(config, "walbraid demo").await?;
    execute(&publisher, UNPUBLISH).await?;
    execute(&publisher, DROP).await?;
    execute(&subscriber, DROP).await
}

/// The first stock, in one transaction: money is all there or not there. A shop that is stocked
/// stays as it is.
pub(super) async fn fill(config: &Config) -> Result<(), Stop> {
    let publisher = session::publisher(config, "walbraid demo").await?;
    let stocked = "SELECT EXISTS (SELECT FROM walbraid_demo.shopper)";
    if publisher
        .query_one(stocked, &[])
        .await
        .or_stop("publisher")?
        .get(0)
    {
        return Ok(());
    }
    let stock = format!(
        "BEGIN;
INSERT INTO walbraid_demo.customer (id, name, balance_cents, tags)
    SELECT i, 'customer ' || i, 1000000, ARRAY['tag ' || i % 7, NULL, 'a, \"b\"']
    FROM generate_series(1, {CUSTOMERS}) AS i;
INSERT INTO walbraid_demo.product
    SELECT i, 'product ' || i, 100 + i * 7 % 900, 1000000, i * 1.250, i / 3.0, 'of good quality'
    FROM generate_series(1, {PRODUCTS}) AS i;
INSERT INTO walbraid_demo.till SELECT i, 0, 0 FROM generate_series(1, {TILLS}) AS i;
INSERT INTO walbraid_demo.shopper
    SELECT i, 0, clock_timestamp() FROM generate_series(1, {SHOPPERS}) AS i;
INSERT INTO walbraid_demo.probe VALUES (1, 0);
COMMIT;"
    );
    execute(&publisher, &stock).await
}

/// A schema of our name that we did not make is not ours to touch.
pub(super) async fn refuse_foreign(config: &Config) -> Result<(), Stop> {
    let sides = [
        (
            "publisher",
            session::publisher(config, "walbraid demo").await?,
        ),
        (
            "subscriber",
            session::subscriber(config, "walbraid demo").await?,
        ),
    ];
    for (server, session) in &sides {
        if comment(session)
            .await?
            .is_some_and(|text| !text.starts_with("walbraid demo"))
        {
            let message = format!("schema \"{SCHEMA}\" of the {server} is not the demo's");
            return Err(Stop::new(StopKind::Usage, message).hint("Drop or rename it."));
        }
    }
    Ok(())
}

/// The comment on our schema, if there is such a schema.
async fn comment(session: &Session) -> Result<Option<String>, Stop> {
    let sql = "SELECT coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '')
               FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let found = session.query_opt(sql, &[&SCHEMA]).await.or_stop("demo")?;
    Ok(found.map(|row| row.get(0)))
}

async fn execute(session: &Session, script: &str) -> Result<(), Stop> {
    session.batch_execute(script).await.or_stop("demo")
}

/// Three sums that belong together, in one statement: all money; what is in tills and no payment;
/// what purchases cost and no line says. Right: `MONEY_CENTS` (or 0 before the first stock), 0, 0.
pub(super) const INVARIANT: &str = "
SELECT ((SELECT coalesce(sum(balance_cents), 0) FROM walbraid_demo.customer)
        + (SELECT coalesce(sum(balance_cents), 0) FROM walbraid_demo.till))::bigint,
       ((SELECT coalesce(sum(balance_cents), 0) FROM walbraid_demo.till)
        - (SELECT coalesce(sum(amount_cents), 0) FROM walbraid_demo.payment))::bigint,
       ((SELECT coalesce(sum(total_cents), 0) FROM walbraid_demo.purchase)
        - (SELECT coalesce(sum(quantity * price_cents), 0)
           FROM walbraid_demo.purchase_line))::bigint
";
