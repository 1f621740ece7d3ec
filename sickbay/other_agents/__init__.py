"""What other agents say of a node in its conditions, and what that is worth.

EKS node-monitoring-agent, node-problem-detector, NVSentinel and the kubelet each write conditions on the Node, with
polarities of their own. They are read as further detectors and never written. None of them condemns a node alone: some
of their words stay until the agent restarts, and turn good because it did (facts: detection 5 and 7, remediation 1.8).
"""
