"""Why an attempt of a training job failed: words of logs, end states, collectives, and the table that weighs them.

`patterns` says what words prove, `log_text` reads logs, `pod_states` and `node_states` read Kubernetes objects,
`error_files` launchers' records, `collectives` and `culprits` find whom the others waited for, and `classify` decides.
Everything is pure, never raises on any text, and keeps only the lines that decide.
"""
