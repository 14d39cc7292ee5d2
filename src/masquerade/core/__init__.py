"""The types that everything else speaks: numpy only, imports nothing of ours."""
