"""The answers, one function per verb: a question in, plain values out. They run in a worker."""
