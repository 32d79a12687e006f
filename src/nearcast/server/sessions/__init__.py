"""Where deliveries go out: sessions, their queues and pace, WebSocket and server-sent events."""
