//! Settings that are wrong: each is named by an exit code, a message and what helps.

use walbraid_tests::bed::Bed;
use walbraid_tests::process::run;
use walbraid_tests::session::with_database;

#[tokio::test]
async fn commands_name_what_is_wrong_by_their_exit_code_and_what_helps() {
    let bed = Bed::new().await.unwatched("nothing runs");
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let publisher = bed.publisher().await;
    let user = format!("{}_user", bed.name);
    let subscriber = bed.subscriber().await;
    let create = format!("CREATE ROLE {user} LOGIN PASSWORD 's3cret-of-mine'");
    publisher.run(&create).await;
    subscriber.run(&create).await;
    let user_of =
        |url: &str, password: &str| url.replace("postgres@", &format!("{user}{password}@"));
    let as_user = |password: &str| user_of(&bed.publisher_url, password);
    let no_database = |url: &str| with_database(url, "not_there");
    let registry = format!("{}/nowhere", bed.stack.addresses.registry_url);
    let nowhere = "postgres://postgres@127.0.0.1:1/postgres";
    // Section, key, value, exit code of setup and check, words of the HINT.
    let cases = [
        ("publisher", "url", nowhere, 10, "\"publisher.url\""),
        ("subscriber", "url", nowhere, 10, "\"subscriber.url\""),
        ("publisher", "url", &as_user(":wrong"), 11, "PGPASSWORD"),
        ("publisher", "url", &as_user(""), 11, "PGPASSWORD"),
        ("publisher", "url", &as_user(":s3cret-of-mine"), 12, ""),
        (
            "subscriber",
            "url",
            &user_of(&bed.subscriber_url, ":s3cret-of-mine"),
            12,
            "GRANT EXECUTE ON FUNCTION pg_catalog.pg_replication_origin_create(text)",
        ),
        (
            "publisher",
            "url",
            &no_database(&bed.publisher_url),
            2,
            "Create the database, or name another one in \"publisher.url\"",
        ),
        (
            "subscriber",
            "url",
            &no_database(&bed.subscriber_url),
            2,
            "Create the database, or name another one in \"subscriber.url\"",
        ),
        (
            "publisher",
            "publication",
            "missing",
            15,
            "CREATE PUBLICATION",
        ),
        (
            "kafka",
            "bootstrap.servers",
            "127.0.0.1:1",
            22,
            "\"kafka.bootstrap.servers\"",
        ),
        (
            "registry",
            "url",
            "http://127.0.0.1:1",
            24,
            "\"registry.url\"",
        ),
        ("registry", "url", &registry, 24, "such as /apis/ccompat/v7"),
        ("publisher", "slt", "x", 2, "configuration.md"),
        ("kafka", "acks", "1", 2, ""),
    ];
    for (section, key, value, code, hint) in cases {
        let mut config = bed.config();
        config.text(section, key, value);
        let file = bed.write(&config, "wrong");
        let (checked, set_up) = tokio::join!(run(&file, &["check"]), run(&file, &["setup"]));
        for (command, outcome) in [("check", checked), ("setup", set_up)] {
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            let case = format!("{command} with {section}.{key} = {value}: {said}");
            assert_eq!(outcome.code, code, "{case}");
            let (_, hints) = said.split_once("HINT:  ").unwrap_or_default();
            assert!(hints.contains(hint), "{case}");
            assert!(
                !said.contains("s3cret-of-mine"),
                "a password is shown: {case}"
            );
        }
    }
    let config = bed.write(&bed.config(), "walbraid");
    for command in ["produce", "consume", "status", "wait"] {
        let outcome = run(&config, &[command]).await;
        assert!(
            [17, 20, 37].contains(&outcome.code),
            "{command}: {}",
            outcome.stderr
        );
    }
    let drop = format!("DROP OWNED BY {user}; DROP ROLE {user}");
    publisher.run(&drop).await;
    subscriber.run(&drop).await;
}

/// A database does not come by itself: who would wait for one waits for ever.
#[tokio::test]
async fn a_database_that_is_not_there_is_not_waited_for() {
    let bed = Bed::new().await.unwatched("nothing runs");
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let pipeline = bed.set_up(&bed.config()).await;
    for (command, side, url) in [
        ("produce", "publisher", &bed.publisher_url),
        ("consume", "subscriber", &bed.subscriber_url),
    ] {
        let set = format!("{side}.url={}", with_database(url, "not_there"));
        let outcome = pipeline.run(&[command, "--set", &set]).await.expect(2);
        for words in [side, "\"not_there\"", "HINT:  "] {
            assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
        }
    }
}

#[tokio::test]
async fn names_that_a_stream_was_not_set_up_with_are_told_with_both_and_what_helps() {
    let bed = Bed::new().await.unwatched("nothing runs");
    bed.both("CREATE TABLE t (id int PRIMARY KEY)").await;
    let pipeline = bed.set_up(&bed.config()).await;
    for (what, key, set_up) in [
        ("topic", "kafka.topic", &bed.topic.name),
        ("slot", "publisher.slot", &bed.name),
    ] {
        let words = format!(
            "stream \"{}\" reads {what} \"{set_up}\", the configuration says \"another\"",
            bed.name
        );
        let set = format!("{key}=another");
        let message = pipeline.run(&["setup", "--set", &set]).await.stops(2);
        for part in [&words, "HINT:  Put it back", "walbraid teardown"] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
        let checked = pipeline.run(&["check", "--set", &set]).await.expect(2);
        assert_eq!(checked.stdout.matches(&words).count(), 1);
        assert!(
            checked.stdout.contains("1 error, "),
            "it is said twice: {}",
            checked.stdout
        );
    }
    let set = "kafka.topic=another";
    pipeline.run(&["consume", "--set", set]).await.stops(2);
    assert_eq!(
        bed.publisher()
            .await
            .value("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'another'")
            .await,
        "0"
    );
}
