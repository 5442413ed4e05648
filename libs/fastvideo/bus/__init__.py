"""The bus that carries committed events: a port, NATS JetStream, and a memory adapter."""
