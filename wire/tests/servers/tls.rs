//! TLS: each mode, with certificates that are good, of another authority, or for another name.

use std::path::{Path, PathBuf};

use walbraid_wire::{BackendMessage, Connection, Error, SqlState, TextRow};

use crate::server::{
    connect, parse, publisher_with, run, stack_file, until_asleep, variable, within,
};

fn authority() -> PathBuf {
    stack_file("tls/ca.crt")
}

/// An authority that signed nothing here.
fn stranger() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates/stranger-ca.crt")
}

async fn in_use(connection: &mut Connection) -> TextRow {
    let sql = "SELECT ssl, version, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    run(connection, sql).await.remove(0)
}

#[tokio::test]
async fn each_mode_with_a_good_certificate() {
    let check = async |parameters: &str, encrypted: &str| {
        let text = format!("user=postgres {parameters}");
        let mut connection = connect(&publisher_with(&text))
            .await
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(
            in_use(&mut connection).await.get("ssl"),
            Some(encrypted),
            "{text}"
        );
    };
    let authority = authority();
    let root = format!("sslrootcert={}", authority.display());
    check("sslmode=disable", "f").await;
    check("sslmode=allow", "f").await;
    check("sslmode=prefer", "t").await;
    check("", "t").await;
    check("sslmode=require", "t").await;
    check(&format!("sslmode=require {root}"), "t").await;
    check(&format!("sslmode=verify-ca {root}"), "t").await;
    check(&format!("sslmode=verify-full {root}"), "t").await;
    check(
        &format!("sslmode=verify-full {root} ssl_max_protocol_version=TLSv1.2"),
        "t",
    )
    .await;
    check(
        &format!("sslmode=verify-full {root} ssl_min_protocol_version=TLSv1.3"),
        "t",
    )
    .await;
    check(&format!("sslmode=verify-full {root} sslsni=0"), "t").await;
}

#[tokio::test]
async fn a_certificate_of_another_authority() {
    let stranger = stranger();
    for (mode, refused) in [
        ("prefer", false),
        ("require", true),
        ("verify-ca", true),
        ("verify-full", true),
    ] {
        let text = format!(
            "user=postgres sslmode={mode} sslrootcert={}",
            stranger.display()
        );
        let result = connect(&publisher_with(&text)).await;
        match result {
            Ok(_) => assert!(!refused, "{mode}"),
            Err(error) => {
                assert!(refused, "{mode}: {error}");
                assert!(matches!(&error, Error::Tls { .. }), "{mode}: {error:?}");
                assert!(error.to_string().contains("UnknownIssuer"), "{error}");
                assert!(!error.is_transient());
            }
        }
    }
}

#[tokio::test]
async fn a_certificate_for_another_name() {
    let url = variable("WALBRAID_PUBLISHER_URL");
    let port = url.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    let text = |mode: &str| {
        parse(&format!(
            "host=db.example.org hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres \
             sslmode={mode} sslrootcert={}",
            authority().display()
        ))
    };
    connect(&text("verify-ca")).await.unwrap();
    let error = connect(&text("verify-full")).await.unwrap_err();
    assert!(matches!(&error, Error::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains("db.example.org"), "{error}");
}

#[tokio::test]
async fn root_certificates_that_are_not_there() {
    let check = async |parameters: &str, expected: &str| {
        let error = connect(&publisher_with(&format!("user=postgres {parameters}"))).await;
        let error = error.unwrap_err();
        assert!(matches!(&error, Error::Configuration { .. }), "{error:?}");
        assert_eq!(error.to_string(), expected);
    };
    check(
        "sslmode=verify-full",
        "root certificate file does not exist",
    )
    .await;
    check(
        "sslmode=verify-full sslrootcert=/nonexistent/ca.crt",
        "could not read certificate file \"/nonexistent/ca.crt\": I/O error: No such file or \
         directory (os error 2)",
    )
    .await;
}

#[tokio::test]
async fn a_role_that_logs_in_by_certificate() {
    let identity = |certificate: &Path, key: &Path| {
        publisher_with(&format!(
            "user=walbraid_cert sslmode=verify-full sslrootcert={} sslcert={} sslkey={}",
            authority().display(),
            certificate.display(),
            key.display()
        ))
    };
    let home = tempfile::tempdir().unwrap();
    // Whatever the stack's own permissions are, the copy is the user's alone.
    let (certificate, key) = (stack_file("tls/client.crt"), home.path().join("client.key"));
    std::fs::copy(stack_file("tls/client.key"), &key).unwrap();
    let permit = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    permit(0o600);
    let mut connection = connect(&identity(&certificate, &key)).await.unwrap();
    let row = in_use(&mut connection).await;
    assert_eq!(row.get("client_dn"), Some("/CN=walbraid_cert"));
    permit(0o644);
    let error = connect(&identity(&certificate, &key)).await.unwrap_err();
    assert!(
        error.to_string().ends_with("has group or world access"),
        "{error}"
    );
    // Without a certificate the server refuses, in its own words.
    let none = format!(
        "user=walbraid_cert sslmode=verify-full sslrootcert={}",
        authority().display()
    );
    let error = connect(&publisher_with(&none)).await.unwrap_err();
    assert!(matches!(&error, Error::Authentication { .. }), "{error:?}");
    // One of an authority that the server does not know.
    let strange = home.path().join("strange.crt");
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=walbraid_cert",
        ])
        .args([Path::new("-keyout"), &key, Path::new("-out"), &strange])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    permit(0o600);
    let error = connect(&identity(&strange, &key)).await.unwrap_err();
    assert!(!error.to_string().contains("none was given"), "{error:?}");
}

#[tokio::test]
async fn channel_binding() {
    let check = async |parameters: &str, expected: Option<&str>| {
        let text = format!("user=walbraid_scram password='scram secret' {parameters}");
        let refused = connect(&publisher_with(&text))
            .await
            .err()
            .map(|error| error.to_string());
        let refused = refused
            .as_deref()
            .map(|text| text.rsplit_once(": ").unwrap().1);
        assert_eq!(refused, expected, "{parameters}");
    };
    check("sslmode=require channel_binding=require", None).await;
    check("sslmode=require channel_binding=prefer", None).await;
    check("sslmode=require channel_binding=disable", None).await;
    check("sslmode=disable channel_binding=prefer", None).await;
    check(
        "sslmode=disable channel_binding=require",
        Some("channel binding is required, but the connection is not encrypted"),
    )
    .await;
    let text = "user=postgres channel_binding=require sslmode=require";
    let error = connect(&publisher_with(text)).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("the server authenticated us without it"),
        "{error}"
    );
}

#[tokio::test]
async fn allow_and_prefer_go_on_with_the_other_kind() {
    // This role is let in over TLS only.
    let text = |mode: &str| {
        publisher_with(&format!(
            "user=walbraid_tls password='tls secret' sslmode={mode}"
        ))
    };
    for mode in ["allow", "prefer", "require"] {
        let mut connection = connect(&text(mode)).await.unwrap();
        assert_eq!(
            in_use(&mut connection).await.get("ssl"),
            Some("t"),
            "{mode}"
        );
    }
    let error = connect(&text("disable")).await.unwrap_err();
    assert!(matches!(&error, Error::Authentication { .. }), "{error:?}");
}

#[tokio::test]
async fn direct_negotiation_is_for_17_and_newer() {
    let root = format!("sslrootcert={}", authority().display());
    let plain = connect(&publisher_with("user=postgres")).await.unwrap();
    let text = format!("user=postgres sslmode=verify-full sslnegotiation=direct {root}");
    let result = connect(&publisher_with(&text)).await;
    if plain.server_version().major >= 17 {
        assert_eq!(in_use(&mut result.unwrap()).await.get("ssl"), Some("t"));
    } else {
        assert!(matches!(
            result,
            Err(Error::Unreachable { .. } | Error::Tls { .. })
        ));
    }
}

/// A cancel of an encrypted session is itself encrypted.
#[tokio::test]
async fn a_cancel_over_tls() {
    let text = format!(
        "user=walbraid_tls password='tls secret' sslmode=verify-full sslrootcert={}",
        authority().display()
    );
    let mut connection = connect(&publisher_with(&text)).await.unwrap();
    let (token, pid) = (connection.cancel_token(), connection.backend_pid());
    let cancelled = async {
        until_asleep(pid).await;
        within(token.cancel()).await.unwrap();
    };
    let sleep = within(connection.simple_query("SELECT pg_sleep(55)"));
    let (result, ()) = tokio::join!(sleep, cancelled);
    assert_eq!(
        result.unwrap_err().sqlstate(),
        Some(SqlState::QUERY_CANCELED)
    );
}

/// Both halves at once, over TLS, from two tasks, each far beyond what buffers hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_at_once() {
    let text = format!(
        "user=postgres sslmode=verify-full sslrootcert={}",
        authority().display()
    );
    let (mut receiver, mut sender) = connect(&publisher_with(&text)).await.unwrap().into_split();
    let writer = tokio::spawn(async move {
        sender.parse("echo", "SELECT $1::text", &[]);
        let value = "t".repeat(32 * 1024);
        for _ in 0..1000 {
            sender.bind("echo", &[], [Some(&value)]);
            sender.execute(0);
            sender.send().await.unwrap();
        }
        sender.sync();
        sender.send().await.unwrap();
        sender
    });
    let mut rows = 0;
    loop {
        match within(receiver.next()).await.unwrap() {
            BackendMessage::DataRow(row) => {
                assert_eq!(row.column(0).map(<[u8]>::len), Some(32 * 1024));
                rows += 1;
            }
            BackendMessage::ReadyForQuery(_) => break,
            _ => {}
        }
    }
    assert_eq!(rows, 1000);
    within(writer).await.unwrap();
}
