//! Each way of authentication, with the right password, the wrong one, and none.

use walbraid_wire::{ConnectOptions, Environment, Error, Replication, SqlState, Startup};

use crate::server::{
    connect, parse, publisher_place, publisher_with, run, session, unique, within,
};

const ROLES: [(&str, &str); 3] = [
    ("walbraid_scram", "scram secret"),
    ("walbraid_md5", "md5 secret"),
    ("walbraid_password", "plain secret"),
];

fn with_password(role: &str, password: &str) -> ConnectOptions {
    publisher_with(&format!("user={role} password='{password}'"))
}

#[tokio::test]
async fn the_right_password() {
    for (role, password) in ROLES {
        for sslmode in ["disable", "require"] {
            let text = format!("user={role} password='{password}' sslmode={sslmode}");
            connect(&publisher_with(&text))
                .await
                .unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }
}

#[tokio::test]
async fn the_wrong_password() {
    for (role, _) in ROLES {
        let error = connect(&with_password(role, "wrong")).await.unwrap_err();
        assert!(
            matches!(error, Error::Authentication { .. }),
            "{role}: {error:?}"
        );
        assert_eq!(error.sqlstate(), Some(SqlState::INVALID_PASSWORD), "{role}");
        assert!(error.to_string().contains(&format!(
            "password authentication failed for user \"{role}\""
        )));
        assert!(!error.is_transient());
        assert!(!format!("{error:?}").contains("wrong"));
    }
}

#[tokio::test]
async fn no_password() {
    for (role, _) in ROLES {
        let error = connect(&publisher_with(&format!("user={role}")))
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.ends_with("the server asks for a password and none was given"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_role_that_is_not_there() {
    let error = connect(&with_password("no_such_role", "x"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
}

#[tokio::test]
async fn the_password_from_the_environment_and_from_a_file() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(".pgpass");
    std::fs::write(
        &file,
        "*:*:*:other:no\n127.0.0.1:*:*:walbraid_scram:scram secret\n",
    )
    .unwrap();
    let permit = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let text = format!("{} user=walbraid_scram", publisher_place());
    let parse = |environment: &Environment| ConnectOptions::parse(&text, environment).unwrap();
    permit(0o600);
    let at_home = Environment::empty().with_home(home.path());
    connect(&parse(&at_home)).await.unwrap();
    let named = Environment::empty().with_variable("PGPASSFILE", file.to_str().unwrap());
    connect(&parse(&named)).await.unwrap();
    let given = Environment::empty().with_variable("PGPASSWORD", "scram secret");
    connect(&parse(&given)).await.unwrap();
    permit(0o640);
    let error = connect(&parse(&at_home)).await.unwrap_err();
    assert!(error.to_string().ends_with("none was given"), "{error}");
}

#[tokio::test]
async fn methods_that_are_not_allowed() {
    let check = async |require: &str, role: &str, password: &str, expected: Option<&str>| {
        let text = format!("user={role} password='{password}' require_auth={require}");
        let refused = connect(&publisher_with(&text))
            .await
            .err()
            .map(|error| error.to_string());
        let refused = refused
            .as_deref()
            .map(|text| text.rsplit_once(": ").unwrap().1);
        assert_eq!(refused, expected, "{require} {role}");
    };
    let refusal =
        |method: &str| format!("the server asks for {method}, which require_auth does not allow");
    check("scram-sha-256", "walbraid_scram", "scram secret", None).await;
    check("!password,!md5", "walbraid_scram", "scram secret", None).await;
    let password = refusal("a cleartext password");
    check(
        "scram-sha-256",
        "walbraid_password",
        "plain secret",
        Some(&password),
    )
    .await;
    check(
        "!password",
        "walbraid_password",
        "plain secret",
        Some(&password),
    )
    .await;
    check(
        "scram-sha-256",
        "walbraid_md5",
        "md5 secret",
        Some(&refusal("an MD5 password")),
    )
    .await;
    check(
        "scram-sha-256",
        "postgres",
        "",
        Some(&refusal("no authentication")),
    )
    .await;
    check("none", "postgres", "", None).await;
}

#[tokio::test]
async fn a_role_without_the_right_to_replicate() {
    let role = unique("wire_plain");
    let mut connection = session(&publisher_with("user=postgres")).await;
    run(
        &mut connection,
        &format!("CREATE ROLE {role} LOGIN IN ROLE auth_trust"),
    )
    .await;
    let startup = Startup {
        replication: Replication::Database,
        ..Startup::default()
    };
    let options = publisher_with(&format!("user={role}"));
    let result = within(walbraid_wire::Connection::connect(&options, &startup)).await;
    run(&mut connection, &format!("DROP ROLE {role}")).await;
    let error = result.unwrap_err();
    assert_eq!(
        error.sqlstate(),
        Some(SqlState::INSUFFICIENT_PRIVILEGE),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_md5_role_through_a_url() {
    let place = publisher_place();
    let port = place
        .split("port=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let url = format!("postgresql://walbraid_md5:md5%20secret@127.0.0.1:{port}/postgres");
    let options = parse(&url);
    connect(&options).await.unwrap();
    assert!(!format!("{options} {options:?}").contains("secret"));
}
