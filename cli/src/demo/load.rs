//! The load: shoppers that run mixed transactions against the publisher at a steady rate.
//!
//! Owns what is bought, given back, renamed and rolled back. Each shopper has a connection of its
//! own; a shared pacer hands out the moments at which transactions begin. Every transaction ends
//! with one more on its shopper's row: the sum of these is how many have arrived, exactly, wherever
//! it is read.
//!
//! Locks are taken in one order (purchase, products by id, customers by id, till), so that a
//! deadlock is rare; one that comes is a transaction rolled back, like the ones that run out of
//! money.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;
use tokio_postgres::{Client, Error, Statement};

use super::shop::{CUSTOMERS, PRODUCTS, TILLS};
use crate::session::Session;

/// Purchases remembered so that some can be given back.
const RECENT_MAX: usize = 1_000;

/// What all shoppers share.
pub(super) struct Load {
    start: Instant,
    end: Instant,
    rate: u64,
    next: AtomicU64,
    purchases: AtomicI64,
    customers: AtomicI32,
    recent: Mutex<VecDeque<i64>>,
    /// Transactions committed.
    pub(super) committed: AtomicU64,
    /// Transactions rolled back, as their kind wants or because something was in the way.
    pub(super) rolled_back: AtomicU64,
}

/// The last ones of a shop that was open before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    purchase: i64,
    customer: i32,
}

impl Before {
    /// Asks the publisher.
    pub(super) async fn read(publisher: &Client) -> Result<Self, Error> {
        let sql = "SELECT (SELECT coalesce(max(id), 0) FROM walbraid_demo.purchase),
                          (SELECT coalesce(max(id), 0) FROM walbraid_demo.customer)";
        let row = publisher.query_one(sql, &[]).await?;
        Ok(Self {
            purchase: row.get(0),
            customer: row.get(1),
        })
    }
}

impl Load {
    /// A load that begins now, on a shop that may have been open before.
    pub(super) fn new(rate: u64, duration: Duration, before: Before) -> Self {
        let start = Instant::now();
        Self {
            start,
            end: start + duration,
            rate,
            next: AtomicU64::new(0),
            purchases: AtomicI64::new(before.purchase + 1),
            customers: AtomicI32::new(before.customer + 1),
            recent: Mutex::default(),
            committed: AtomicU64::new(0),
            rolled_back: AtomicU64::new(0),
        }
    }

    /// The moment of the next transaction, or none when the load is over.
    async fn turn(&self) -> Option<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let due = self.start + Duration::from_secs_f64(number as f64 / self.rate as f64);
        if due.max(Instant::now()) >= self.end {
            return None;
        }
        tokio::time::sleep_until(due).await;
        Some(())
    }

    fn remember(&self, purchase: i64) {
        let mut recent = self
            .recent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(purchase);
    }

    fn recall(&self, at: usize) -> Option<i64> {
        let mut recent = self
            .recent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = recent.len().max(1);
        recent.remove(at % count)
    }
}

/// What a transaction does.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Purchase,
    PurchaseWithSecondThought,
    GiveBack,
    Transfer,
    Describe,
    Visit,
    SignUp,
    Reprice,
    Regret,
}

impl Kind {
    /// Of a hundred transactions: so many of each kind.
    const MIX: &[(u32, Kind)] = &[
        (40, Kind::Purchase),
        (12, Kind::PurchaseWithSecondThought),
        (12, Kind::GiveBack),
        (10, Kind::Transfer),
        (6, Kind::Describe),
        (9, Kind::Visit),
        (4, Kind::SignUp),
        (2, Kind::Reprice),
        (5, Kind::Regret),
    ];

    fn drawn(number: u32) -> Self {
        let mut left = number % 100;
        for (weight, kind) in Self::MIX {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return *kind,
            }
        }
        Self::Purchase
    }
}

/// Whether a transaction is to be committed.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Commit,
    RollBack,
}

/// One shopper: a connection, its statements, its dice.
pub(super) struct Shopper {
    id: i32,
    session: Session,
    statements: Statements,
    dice: StdRng,
}

macro_rules! statements {
    ($($name:ident = $sql:literal;)*) => {
        struct Statements { $($name: Statement,)* }

        impl Statements {
            async fn prepare(client: &Client) -> Result<Self, Error> {
                Ok(Self { $($name: client.prepare($sql).await?,)* })
            }
        }
    };
}

statements! {
    take = "UPDATE walbraid_demo.product SET stock = stock - $2 WHERE id = $1
            RETURNING price_cents";
    describe = "UPDATE walbraid_demo.product SET description = $2, rating = rating + 0.1
                WHERE id = $1";
    reprice = "UPDATE walbraid_demo.product SET price_cents = price_cents + $3
               WHERE id BETWEEN $1 AND $2 AND price_cents + $3 > 0";
    pay = "UPDATE walbraid_demo.customer SET balance_cents = balance_cents - $2
           WHERE id = $1 AND balance_cents >= $2";
    note = "UPDATE walbraid_demo.customer
            SET notes = notes || jsonb_build_object('last', $2::bigint) WHERE id = $1";
    sign_up = "INSERT INTO walbraid_demo.customer (id, name, balance_cents) VALUES ($1, $2, 0)";
    earn = "UPDATE walbraid_demo.till SET balance_cents = balance_cents + $2, sales = sales + 1
            WHERE id = $1";
    purchase = "INSERT INTO walbraid_demo.purchase
                VALUES ($1, $2, $3, 'placed', clock_timestamp())";
    progress = "UPDATE walbraid_demo.purchase SET state = 'paid' WHERE id = $1";
    line = "INSERT INTO walbraid_demo.purchase_line VALUES ($1, $2, $3, $4, $5)";
    payment = "INSERT INTO walbraid_demo.payment
               VALUES ($1, $2, $3, decode(md5(($1::bigint)::text), 'hex'))";
    unpay = "DELETE FROM walbraid_demo.payment WHERE purchase_id = $1
             RETURNING till_id, amount_cents";
    unline = "DELETE FROM walbraid_demo.purchase_line WHERE purchase_id = $1";
    unpurchase = "DELETE FROM walbraid_demo.purchase WHERE id = $1 RETURNING customer_id";
    visit = "INSERT INTO walbraid_demo.visit
             VALUES ($1, $2, $3::float8 * interval '1 millisecond', clock_timestamp())";
    done = "UPDATE walbraid_demo.shopper SET done = done + 1, at = clock_timestamp() WHERE id = $1";
}

impl Shopper {
    /// Prepares the statements.
    pub(super) async fn new(id: i32, session: Session) -> Result<Self, Error> {
        let statements = Statements::prepare(&session).await?;
        Ok(Self {
            id,
            session,
            statements,
            dice: StdRng::seed_from_u64(id.unsigned_abs().into()),
        })
    }

    /// Runs transactions until the load is over.
    pub(super) async fn shop(&mut self, load: &Load) -> Result<(), Error> {
        while load.turn().await.is_some() {
            let kind = Kind::drawn(self.dice.random_range(0..100));
            self.session.batch_execute("BEGIN").await?;
            let end = match self.run(kind, load).await {
                Ok(End::Commit) => self.commit().await,
                Ok(End::RollBack) => Ok(false),
                Err(error) => Err(error),
            };
            match end {
                Ok(true) => {
                    load.committed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Ok(false) => {}
                // A deadlock, or a check that another shopper's purchase made false.
                Err(error) if error.as_db_error().is_some() => {}
                Err(error) => return Err(error),
            }
            self.session.batch_execute("ROLLBACK").await?;
            load.rolled_back.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn commit(&self) -> Result<bool, Error> {
        self.session
            .execute(&self.statements.done, &[&self.id])
            .await?;
        self.session.batch_execute("COMMIT").await?;
        Ok(true)
    }

    async fn run(&mut self, kind: Kind, load: &Load) -> Result<End, Error> {
        match kind {
            Kind::Purchase => self.buy(load, false).await,
            Kind::PurchaseWithSecondThought => self.buy(load, true).await,
            Kind::GiveBack => self.give_back(load).await,
            Kind::Transfer => self.transfer().await,
            Kind::Describe => self.describe().await,
            Kind::Visit => self.visit().await,
            Kind::SignUp => self.sign_up(load).await,
            Kind::Reprice => self.reprice().await,
            Kind::Regret => self.buy(load, false).await.map(|_| End::RollBack),
        }
    }

    /// Several products of one customer, paid at one till. The first products are the hot ones.
    async fn buy(&mut self, load: &Load, second_thought: bool) -> Result<End, Error> {
        let customer = self.dice.random_range(1..=CUSTOMERS);
        let till = self.dice.random_range(1..=TILLS);
        let lines = self.dice.random_range(1..=5);
        let mut products: Vec<i32> = (0..lines).map(|_| self.product()).collect();
        products.sort_unstable();
        products.dedup();
        let s = &self.statements;
        let mut taken = Vec::with_capacity(products.len());
        for product in products {
            let quantity = self.dice.random_range(1..=3);
            let row = self
                .session
                .query_one(&s.take, &[&product, &quantity])
                .await?;
            taken.push((product, quantity, row.get::<_, i64>(0)));
        }
        if second_thought {
            let last = taken.last().map_or(1, |(product, _, _)| *product);
            self.session.batch_execute("SAVEPOINT thought").await?;
            self.session.execute(&s.take, &[&last, &99]).await?;
            self.session.execute(&s.note, &[&customer, &-1_i64]).await?;
            self.session
                .batch_execute("ROLLBACK TO thought; SAVEPOINT another")
                .await?;
        }
        let total: i64 = taken
            .iter()
            .map(|(_, quantity, price)| i64::from(*quantity) * price)
            .sum();
        if self.session.execute(&s.pay, &[&customer, &total]).await? == 0 {
            return Ok(End::RollBack);
        }
        let purchase = load.purchases.fetch_add(1, Ordering::Relaxed);
        self.session
            .execute(&s.purchase, &[&purchase, &customer, &total])
            .await?;
        for (line, (product, quantity, price)) in (1_i32..).zip(&taken) {
            self.session
                .execute(&s.line, &[&purchase, &line, product, quantity, price])
                .await?;
        }
        self.session
            .execute(&s.payment, &[&purchase, &till, &total])
            .await?;
        self.session.execute(&s.progress, &[&purchase]).await?;
        self.session
            .execute(&s.note, &[&customer, &purchase])
            .await?;
        self.session.execute(&s.earn, &[&till, &total]).await?;
        if second_thought {
            self.session.batch_execute("RELEASE another").await?;
        }
        load.remember(purchase);
        Ok(End::Commit)
    }

    /// A purchase that never was: three kinds of rows are deleted and the money goes back.
    async fn give_back(&mut self, load: &Load) -> Result<End, Error> {
        let Some(purchase) = load.recall(self.dice.random_range(0..RECENT_MAX)) else {
            return self.visit().await;
        };
        let s = &self.statements;
        let Some(payment) = self.session.query_opt(&s.unpay, &[&purchase]).await? else {
            return Ok(End::RollBack);
        };
        let (till, amount): (i32, i64) = (payment.get(0), payment.get(1));
        self.session.execute(&s.unline, &[&purchase]).await?;
        let customer: i32 = self
            .session
            .query_one(&s.unpurchase, &[&purchase])
            .await?
            .get(0);
        self.session.execute(&s.pay, &[&customer, &-amount]).await?;
        self.session.execute(&s.earn, &[&till, &-amount]).await?;
        Ok(End::Commit)
    }

    async fn transfer(&mut self) -> Result<End, Error> {
        let mut pair = [
            self.dice.random_range(1..=CUSTOMERS),
            self.dice.random_range(1..=CUSTOMERS),
        ];
        pair.sort_unstable();
        let amount = self.dice.random_range(-5_000_i64..=5_000);
        if pair[0] == pair[1] {
            return Ok(End::RollBack);
        }
        for (customer, amount) in pair.into_iter().zip([amount, -amount]) {
            if self
                .session
                .execute(&self.statements.pay, &[&customer, &amount])
                .await?
                == 0
            {
                return Ok(End::RollBack);
            }
        }
        Ok(End::Commit)
    }

    /// A value too wide for its page: later updates of the row do not carry it.
    async fn describe(&mut self) -> Result<End, Error> {
        let product = self.product();
        let words = self.dice.random_range(200..2_500);
        let text: String = (0..words)
            .map(|_| format!("{:08x} ", self.dice.random::<u32>()))
            .collect();
        self.session
            .execute(&self.statements.describe, &[&product, &text])
            .await?;
        Ok(End::Commit)
    }

    async fn visit(&mut self) -> Result<End, Error> {
        let customer = Some(self.dice.random_range(1..=CUSTOMERS)).filter(|id| id % 10 != 0);
        let page = format!("/product/{}?q=ü%20\t\\", self.product());
        let took = self.dice.random_range(0.0..90_000.0_f64);
        self.session
            .execute(&self.statements.visit, &[&customer, &page, &took])
            .await?;
        Ok(End::Commit)
    }

    async fn sign_up(&mut self, load: &Load) -> Result<End, Error> {
        let id = load.customers.fetch_add(1, Ordering::Relaxed);
        let name = format!("customer {id} 'o\"neil");
        self.session
            .execute(&self.statements.sign_up, &[&id, &name])
            .await?;
        Ok(End::Commit)
    }

    async fn reprice(&mut self) -> Result<End, Error> {
        let first = self.dice.random_range(1..=PRODUCTS - 20);
        let change = self.dice.random_range(-3_i64..=4);
        self.session
            .execute(&self.statements.reprice, &[&first, &(first + 19), &change])
            .await?;
        Ok(End::Commit)
    }

    /// One in two is among the ten products everybody wants.
    fn product(&mut self) -> i32 {
        let last = if self.dice.random_bool(0.5) {
            10
        } else {
            PRODUCTS
        };
        self.dice.random_range(1..=last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_a_hundred() {
        assert_eq!(Kind::MIX.iter().map(|(weight, _)| weight).sum::<u32>(), 100);
        assert!(matches!(Kind::drawn(0), Kind::Purchase));
        assert!(matches!(Kind::drawn(99), Kind::Regret));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_given_once() {
        let load = Load::new(1, Duration::from_secs(1), Before::default());
        assert_eq!(load.recall(7), None);
        (0..2_000).for_each(|id| load.remember(id));
        let mut seen: Vec<i64> = std::iter::from_fn(|| load.recall(3)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), RECENT_MAX);
    }
}
