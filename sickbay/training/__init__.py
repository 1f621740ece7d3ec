"""Training jobs: what one is, what its attempts leave as evidence, what that means, and what is to be done.

`job` is what a person asks for, `attempts` what the outside shows of one attempt, `evidence` what a failed one leaves,
`verdicts` what that means, `history` what a job remembers, `handshake` what jobs and node incidents tell each other.
"""
