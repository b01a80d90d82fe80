"""The local stack: two PostgreSQL servers, Kafka and a Schema Registry as plain processes.

`bin/stack` is its command line. One file, one concept: `layout` (where things are and how they
are remembered), `ports`, `processes`, `packages` (Debian's), `binaries` (the servers' own),
`certificates`, one file for each kind of server, and `control`, which puts them together.
"""
