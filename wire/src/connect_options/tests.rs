//! Connection strings as tables: what each means, and what is refused.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::tls_options::{Roots, SslMode};

fn environment(variables: &[(&str, &str)]) -> Environment {
    let empty = Environment::empty().with_user("os").with_home("/home/os");
    variables.iter().fold(empty, |environment, (name, value)| {
        environment.with_variable(name, value)
    })
}

/// Everything that tells one set of options from another, on one line.
fn summary(options: &ConnectOptions) -> String {
    let password = options.password.as_deref().unwrap_or("-");
    let hosts: Vec<String> = options
        .hosts
        .iter()
        .map(|host| match host.address {
            Some(address) => format!("{host}={address}"),
            None => host.to_string(),
        })
        .collect();
    format!(
        "{} {password} {} {}",
        options.user,
        hosts.join(" "),
        options.database
    )
}

#[test]
fn where_and_as_whom() {
    let check = |text: &str, variables: &[(&str, &str)], expected: &str| {
        let options = ConnectOptions::parse(text, &environment(variables));
        let options = options.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(summary(&options), expected, "{text} {variables:?}");
    };
    check("", &[], "os - localhost:5432 os");
    check("user=u", &[], "u - localhost:5432 u");
    check("dbname=d", &[], "os - localhost:5432 d");
    check("postgresql://u:p@h:1/d", &[], "u p h:1 d");
    check("host=a,b port=1,2 dbname=d", &[], "os - a:1 b:2 d");
    check("host=a,b port=7 dbname=d", &[], "os - a:7 b:7 d");
    check("host=a,b port=,8 dbname=d", &[], "os - a:5432 b:8 d");
    check("host=::1 dbname=d", &[], "os - [::1]:5432 d");
    check(
        "host=h hostaddr=10.0.0.1 dbname=d",
        &[],
        "os - h:5432=10.0.0.1 d",
    );
    check(
        "hostaddr=10.0.0.1 dbname=d",
        &[],
        "os - 10.0.0.1:5432=10.0.0.1 d",
    );
    check("host=/run/pg dbname=d", &[], "os - /run/pg:5432 d");
    check("host=a host=b dbname=d", &[], "os - b:5432 d");
    let variables = [
        ("PGHOST", "eh"),
        ("PGPORT", "9"),
        ("PGUSER", "eu"),
        ("PGPASSWORD", "ep"),
        ("PGDATABASE", "ed"),
    ];
    check("", &variables, "eu ep eh:9 ed");
    check("postgresql://u:p@h:1/d", &variables, "u p h:1 d");
    check("user=u", &[("PGDATABASE", "")], "u - localhost:5432 u");
    // Given as nothing: the default, whatever the environment says.
    check("host='' dbname=d", &variables, "eu ep localhost:9 d");
}

#[test]
fn values_that_are_refused() {
    let check = |text: &str, expected: &str| {
        let error = ConnectOptions::parse(text, &environment(&[])).unwrap_err();
        let hint = error
            .hint()
            .map_or_else(String::new, |hint| format!(" | {hint}"));
        assert_eq!(format!("{error}{hint}"), expected, "{text}");
    };
    let invalid = |name: &str| format!("invalid connection parameter \"{name}\"");
    let integer = |name: &str| format!("invalid integer value for connection parameter \"{name}\"");
    check("hots=h", &invalid("hots"));
    check("postgresql://h?sslmod=x", &invalid("sslmod"));
    check(
        "service=s",
        "connection parameter \"service\" is not supported",
    );
    check(
        "replication=true",
        "connection parameter \"replication\" is not supported",
    );
    check(
        "port=x",
        "invalid port number in connection parameter \"port\"",
    );
    check(
        "port=0",
        "invalid port number in connection parameter \"port\"",
    );
    check(
        "port=65536",
        "invalid port number in connection parameter \"port\"",
    );
    check(
        "host=a port=1,2",
        "could not match 2 port numbers to 1 hosts",
    );
    check(
        "host=a,b hostaddr=::1",
        "could not match 2 host names to 1 hostaddr values",
    );
    check(
        "hostaddr=x",
        "invalid address in connection parameter \"hostaddr\"",
    );
    check("connect_timeout=x", &integer("connect_timeout"));
    check("keepalives_idle=-1", &integer("keepalives_idle"));
    check(
        "sslmode=on",
        "invalid value for connection parameter \"sslmode\" | It can be prefer, disable, \
         allow, require, verify-ca, verify-full.",
    );
    check(
        "target_session_attrs=master",
        "invalid value for connection parameter \"target_session_attrs\" | It can be any, \
         read-write, read-only, primary, standby, prefer-standby.",
    );
    check(
        "sslmode=prefer sslnegotiation=direct",
        "weak sslmode may not be used with sslnegotiation=direct | Use sslmode require, \
         verify-ca or verify-full.",
    );
    check(
        "sslmode=require sslrootcert=system",
        "weak sslmode may not be used with sslrootcert=system | Use sslmode verify-full.",
    );
    check(
        "ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
        "invalid SSL protocol version range",
    );
    check(
        "require_auth=md5,!password",
        "connection parameter \"require_auth\" mixes methods with and without \"!\"",
    );
    check(
        "require_auth=x",
        "invalid method in connection parameter \"require_auth\"",
    );
    check(
        "gssencmode=require",
        "invalid value for connection parameter \"gssencmode\" | It can be prefer, disable.",
    );
}

#[test]
fn how_to_connect() {
    let parse = |text: &str| ConnectOptions::parse(text, &environment(&[])).unwrap();
    let options = parse("");
    assert_eq!(options.connect_timeout, Some(CONNECT_TIMEOUT));
    assert_eq!(
        options.tls.roots,
        Roots::DefaultFile("/home/os/.postgresql/root.crt".into())
    );
    assert_eq!(options.tls.mode, SslMode::Prefer);
    assert!(options.tcp.keepalives);
    assert_eq!(parse("connect_timeout=0").connect_timeout, None);
    assert_eq!(parse("connect_timeout=-1").connect_timeout, None);
    assert_eq!(
        parse("connect_timeout=7").connect_timeout,
        Some(Duration::from_secs(7))
    );
    assert!(!parse("keepalives=0").tcp.keepalives);
    assert_eq!(
        parse("tcp_user_timeout=9").tcp.user_timeout,
        Some(Duration::from_millis(9))
    );
    assert_eq!(parse("sslrootcert=system").tls.mode, SslMode::VerifyFull);
    assert_eq!(parse("sslrootcert=a").tls.roots, Roots::File("a".into()));
    let full = parse("sslmode=verify-full client_encoding=LATIN1 fallback_application_name=f");
    assert_eq!(full.tls.mode, SslMode::VerifyFull);
    assert_eq!(full.application_name.as_deref(), Some("f"));
    let named = parse("application_name=a").with_default_application_name("b");
    assert_eq!(named.application_name.as_deref(), Some("a"));
    let methods = parse("require_auth=scram-sha-256,none").allowed;
    assert!(methods.scram && methods.none && !methods.md5 && !methods.password);
    let methods = parse("require_auth=!password").allowed;
    assert!(methods.scram && methods.none && methods.md5 && !methods.password);
}

#[test]
fn no_secret_is_shown() {
    let options = ConnectOptions::parse("postgresql://u:hunter2@h/d", &environment(&[]));
    let options = options.unwrap();
    assert_eq!(options.to_string(), "postgresql://u@h:5432/d");
    assert!(!format!("{options:?}").contains("hunter2"));
    let variables = environment(&[("PGPASSWORD", "hunter2")]);
    assert!(!format!("{variables:?}").contains("hunter2"));
}
