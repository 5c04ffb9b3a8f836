"""The store on Apache Cassandra."""
