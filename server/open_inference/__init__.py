"""The Open Inference Protocol, version 2: what its REST and its gRPC form share. No network here."""
