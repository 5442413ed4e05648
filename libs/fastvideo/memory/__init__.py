"""Memory by tagged pool: what is resident, for whom, and what may still be taken."""
