//! What a test asks Kafka itself: a topic's records and settings, a group's offsets.

use std::time::{Duration, Instant};

use crate::wait::{PATIENCE, until};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::OwnedMessage;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

const REQUEST: Duration = Duration::from_secs(10);

/// One topic on one Kafka.
#[derive(Clone, Debug)]
pub struct Topic {
    /// `bootstrap.servers`.
    pub kafka: String,
    /// Its name.
    pub name: String,
}

impl Topic {
    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.kafka);
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }

    /// Makes it.
    pub async fn create(&self, partitions: i32) {
        let topic = NewTopic::new(&self.name, partitions, TopicReplication::Fixed(1));
        let made = self
            .admin()
            .create_topics([&topic], &AdminOptions::new())
            .await
            .unwrap();
        made.into_iter().for_each(|each| drop(each.unwrap()));
    }

    /// Removes it, if it is there.
    pub async fn delete(&self) {
        drop(
            self.admin()
                .delete_topics(&[&self.name], &AdminOptions::new())
                .await,
        );
    }

    /// Changes one of its settings.
    pub async fn configure(&self, key: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(&self.name)).set(key, value);
        let done = self
            .admin()
            .alter_configs([&change], &AdminOptions::new())
            .await
            .unwrap();
        done.into_iter().for_each(|each| drop(each.unwrap()));
    }

    /// Whether it is there.
    pub async fn exists(&self) -> bool {
        let topic = self.clone();
        tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = topic.client().create().unwrap();
            let metadata = consumer.fetch_metadata(None, REQUEST).unwrap();
            metadata
                .topics()
                .iter()
                .any(|each| each.name() == topic.name)
        })
        .await
        .unwrap()
    }

    /// Every record of its first partition, from the beginning to the end at the time of the call.
    pub async fn records(&self) -> Vec<OwnedMessage> {
        let topic = self.clone();
        tokio::task::spawn_blocking(move || topic.read_all())
            .await
            .unwrap()
    }

    fn read_all(&self) -> Vec<OwnedMessage> {
        let mut config = self.client();
        // The group is a word the client insists on; nothing is committed.
        config
            .set("group.id", format!("{}-read", self.name))
            .set("enable.auto.commit", "false");
        let consumer: BaseConsumer = config.create().unwrap();
        let end = self.end(&consumer);
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, 0, Offset::Beginning)
            .unwrap();
        consumer.assign(&list).unwrap();
        let mut records = Vec::new();
        while records
            .last()
            .map_or(end > 0, |last: &OwnedMessage| last.offset() + 1 < end)
        {
            let record = consumer
                .poll(REQUEST)
                .expect("the log is not read to its end")
                .unwrap();
            records.push(record.detach());
        }
        records
    }

    /// The offset behind the last record. A broker that has just come back may not lead yet.
    fn end(&self, consumer: &BaseConsumer) -> i64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match consumer.fetch_watermarks(&self.name, 0, REQUEST) {
                Ok((_, end)) => return end,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            // Nothing is assigned: this only lets the client work.
            drop(consumer.poll(Duration::from_millis(50)));
        }
    }

    /// Waits until at least `records` are there, and gives the offset behind the last one.
    pub async fn end_after(&self, records: usize) -> i64 {
        until("the log grows", PATIENCE, async || {
            let all = self.records().await;
            all.last()
                .filter(|_| all.len() >= records)
                .map(|last| last.offset() + 1)
        })
        .await
    }

    /// Deletes every record before `offset`, as retention does.
    pub async fn delete_before(&self, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, 0, Offset::Offset(offset))
            .unwrap();
        self.admin()
            .delete_records(&list, &AdminOptions::new())
            .await
            .unwrap();
    }

    /// Becomes a static member of a group, in the place of another of that name, and is given the
    /// first partition. What it does then is nothing.
    pub async fn join(&self, group: &str, instance: &str) -> BaseConsumer {
        let mut config = self.client();
        config
            .set("group.id", group)
            .set("group.instance.id", instance)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.auto.commit", "false");
        let topic = self.name.clone();
        tokio::task::spawn_blocking(move || {
            let member: BaseConsumer = config.create().unwrap();
            member.subscribe(&[&topic]).unwrap();
            let deadline = Instant::now() + PATIENCE;
            while member.assignment().unwrap().count() == 0 {
                assert!(
                    Instant::now() < deadline,
                    "the group does not take a member"
                );
                drop(member.poll(Duration::from_millis(50)));
            }
            member
        })
        .await
        .unwrap()
    }

    /// How many members a group has, those that stand by included.
    pub async fn members(&self, group: &str) -> usize {
        let (topic, group) = (self.clone(), group.to_owned());
        tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = topic.client().create().unwrap();
            let list = consumer.fetch_group_list(Some(&group), REQUEST).unwrap();
            list.groups().iter().map(|each| each.members().len()).sum()
        })
        .await
        .unwrap()
    }

    /// The offset that a group has committed on the first partition.
    pub async fn committed(&self, group: &str) -> Option<i64> {
        let (topic, group) = (self.clone(), group.to_owned());
        tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = topic.client().set("group.id", group).create().unwrap();
            let mut list = TopicPartitionList::new();
            list.add_partition(&topic.name, 0);
            let committed = consumer.committed_offsets(list, REQUEST).unwrap();
            committed
                .elements()
                .first()
                .and_then(|each| each.offset().to_raw())
                .filter(|at| *at >= 0)
        })
        .await
        .unwrap()
    }
}
