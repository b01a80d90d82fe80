//! The tokio-postgres client over this crate's sessions.

use walbraid_wire::{Error, SqlState, sql};

use crate::server::{
    parse, publisher, publisher_place, publisher_with, run, session, stack_file, until_asleep,
    within,
};

#[tokio::test]
async fn a_client_works_and_ends() {
    let settings = [("application_name", "walbraid sql"), ("TimeZone", "UTC")];
    let client = within(sql(&publisher(), &settings)).await.unwrap();
    let row = client
        .query_one("SELECT $1::int4 + 1, current_setting('TimeZone')", &[&41])
        .await;
    let row = row.unwrap();
    assert_eq!(
        (row.get::<_, i32>(0), row.get::<_, String>(1)),
        (42, "UTC".to_owned())
    );
    let error = Error::from(client.query_one("SELECT 1/0", &[]).await.unwrap_err());
    assert_eq!(
        error
            .sqlstate()
            .map(|state| state.code().to_owned())
            .as_deref(),
        Some("22012")
    );
    let pid = client.backend_pid();
    within(client.close()).await.unwrap();
    let mut other = session(&publisher()).await;
    let present = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid}");
    while !run(&mut other, &present).await.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_over_tls_with_a_password() {
    let options = publisher_with(&format!(
        "user=walbraid_tls password='tls secret' sslmode=verify-full channel_binding=require \
         sslrootcert={}",
        stack_file("tls/ca.crt").display()
    ));
    let client = within(sql(&options, &[])).await.unwrap();
    let row = client
        .query_one(
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
            &[],
        )
        .await
        .unwrap();
    assert!(row.get::<_, bool>(0));
}

#[tokio::test]
async fn a_lost_session_and_a_cancel_are_told() {
    let client = within(sql(&publisher(), &[])).await.unwrap();
    let token = client.cancel_token();
    let cancel = async {
        until_asleep(client.backend_pid()).await;
        within(token.cancel()).await.unwrap();
    };
    let (result, ()) = tokio::join!(client.batch_execute("SELECT pg_sleep(55)"), cancel);
    let error = Error::from(result.unwrap_err());
    assert_eq!(error.sqlstate(), Some(SqlState::QUERY_CANCELED));
    let kill = "SELECT pg_terminate_backend(pg_backend_pid())";
    let error = Error::from(client.batch_execute(kill).await.unwrap_err());
    assert!(error.is_transient(), "{error:?}");
    let error = Error::from(within(client.batch_execute("SELECT 1")).await.unwrap_err());
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
}

#[tokio::test]
async fn a_wrong_password_is_an_authentication_error() {
    let text = format!("{} user=walbraid_scram password=wrong", publisher_place());
    let error = within(sql(&parse(&text), &[])).await.unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
}
