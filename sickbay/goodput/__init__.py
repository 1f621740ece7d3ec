"""What became of a training job's time: every second in exactly one bucket, and what each cause cost.

`timeline` lays the attempts, pauses and steps of a job's history end to end, `account` adds them up, `picture` draws
them. All pure: `sickbay train report` calls them with what the job's workflow remembers.
"""
