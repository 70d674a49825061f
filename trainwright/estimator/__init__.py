"""A job's configuration held against its image, and the code or request that starts the job.

``run`` is the whole of the verb; ``check`` holds a job against the families of rules (``rules_*``, ``limits``);
``figures`` is the plan of the job; ``request``, ``sdk2``, ``sdk3`` and ``awscli`` write what starts it.
"""
