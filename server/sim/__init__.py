"""The simulated engine: a stand-in for SGLang with its flags, process tree, HTTP dialects, log lines and failures."""
