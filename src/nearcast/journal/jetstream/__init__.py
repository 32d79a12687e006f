"""The journal on NATS JetStream: a log that is replicated over several machines. Needs the extra `nearcast[nats]`."""
