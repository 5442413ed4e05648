"""What a tenant may use: requests a minute, device-seconds an hour, requests under way.

The log is the authority. Counters are kept twice, in Redis for all replicas together and in the
memory of each; both are made of the log and can be thrown away.
"""
