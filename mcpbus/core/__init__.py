"""The message bus: sessions, requests and their calls, streams, subscriptions, tasks, and the fate of all that is said."""
