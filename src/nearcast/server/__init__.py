"""The talking half: sessions, queues, pacing, HTTP, WebSocket, SSE. Only here is the web stack."""
