//! The shop: its tables, its first stock, and what must always be true of its money.
//!
//! Owns the SQL of both sides, which is the same. Small on purpose and varied on purpose: foreign
//! keys, hot rows (tills, the first products), wide rows that are stored out of line, rows that are
//! deleted, a table without a key, an enum, numerics, JSON, bytes, arrays, times.
//!
//! **Money is neither made nor lost.** All money lies with customers or in tills, and every cent in
//! a till is a payment. [`INVARIANT`] asks for all of it in one statement, so in one snapshot: two
//! tables of one transaction seen apart would break it.

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
pub(super) const CREATE: &str = "
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

/// Publishes them. Statement by statement, since a publisher of any version knows this form.
pub(super) const PUBLISH: &str = "
CREATE PUBLICATION walbraid_demo FOR TABLE
    walbraid_demo.customer, walbraid_demo.product, walbraid_demo.till, walbraid_demo.purchase,
    walbraid_demo.purchase_line, walbraid_demo.payment, walbraid_demo.visit,
    walbraid_demo.shopper, walbraid_demo.probe;
";

/// Removes all of it.
pub(super) const UNPUBLISH: &str = "DROP PUBLICATION IF EXISTS walbraid_demo;";
/// Removes all of it.
pub(super) const DROP: &str = "DROP SCHEMA IF EXISTS walbraid_demo CASCADE;";

/// The first stock, in one transaction: money is all there or not there.
pub(super) fn fill(shoppers: i32) -> String {
    format!(
        "BEGIN;
INSERT INTO walbraid_demo.customer (id, name, balance_cents, tags)
    SELECT i, 'customer ' || i, 1000000, ARRAY['tag ' || i % 7, NULL, 'a, \"b\"']
    FROM generate_series(1, {CUSTOMERS}) AS i;
INSERT INTO walbraid_demo.product
    SELECT i, 'product ' || i, 100 + i * 7 % 900, 1000000, i * 1.250, i / 3.0, 'of good quality'
    FROM generate_series(1, {PRODUCTS}) AS i;
INSERT INTO walbraid_demo.till SELECT i, 0, 0 FROM generate_series(1, {TILLS}) AS i;
INSERT INTO walbraid_demo.shopper
    SELECT i, 0, clock_timestamp() FROM generate_series(1, {shoppers}) AS i;
INSERT INTO walbraid_demo.probe VALUES (1, 0);
COMMIT;"
    )
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
