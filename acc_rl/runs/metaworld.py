PAPER_TASKS = ("push-v3",)
