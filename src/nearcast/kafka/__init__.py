"""A door to Kafka: what comes in topics is published, what chosen clients receive goes to topics."""
