"""How Spark's executors come to what they need: nearcast's code, what deciding takes, and the events."""
