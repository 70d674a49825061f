"""Check a job against every family of rules."""

from __future__ import annotations

from trainwright.core import findings
from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, Rule
from trainwright.estimator import (
    figures,
    rules_algorithms,
    rules_clusters,
    rules_code,
    rules_compiler,
    rules_distribution,
    rules_image,
    rules_inputs,
    rules_job,
    rules_launch,
    rules_metrics,
    rules_options,
    rules_places,
    rules_reach,
    rules_sdk3,
    rules_smp,
    rules_tuner,
    rules_values,
    rules_versions,
    service_limits,
    silence,
)
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.distribution import compile_distribution

FAMILIES = (
    rules_distribution,
    rules_smp,
    rules_launch,
    rules_image,
    rules_versions,
    rules_compiler,
    rules_job,
    rules_inputs,
    rules_options,
    rules_metrics,
    rules_values,
    rules_places,
    rules_reach,
    rules_code,
    rules_tuner,
    rules_algorithms,
    rules_sdk3,
    figures,
    service_limits,
)
# What a job is checked for that SageMaker does not start.
OF_CLUSTERS = (
    *(rules_distribution, rules_launch, rules_image, rules_versions),
    *(rules_job, rules_inputs, figures, rules_clusters),
)
RULES: tuple[Rule, ...] = (
    *rules_distribution.RULES,
    *rules_smp.RULES,
    *rules_launch.RULES,
    *rules_image.RULES,
    *rules_compiler.RULES,
    *rules_job.RULES,
    *rules_inputs.RULES,
    *rules_options.RULES,
    *rules_metrics.RULES,
    *rules_values.RULES,
    *rules_tuner.RULES,
    *rules_algorithms.RULES,
    *rules_sdk3.RULES,
    *service_limits.RULES,
    *silence.RULES,
    *rules_clusters.RULES,
    *rules_places.RULES,
    *rules_reach.RULES,
    *rules_code.RULES,
    *rules_versions.RULES,
)
CODES = findings.table(RULES)


def check(subject: Subject) -> list[Finding]:
    """Return all findings for a job without duplicates, in the order of the families."""
    found: list[Finding] = []
    if subject.cluster:
        found = [each for family in OF_CLUSTERS for each in family.check(subject)]
        return list(dict.fromkeys(each for each in found if each.code not in rules_clusters.NOT_THERE))
    for family in FAMILIES:
        # The limits need a request, which an invalid distribution does not have.
        if family is service_limits and any(f.severity == "error" and f.path.startswith("distribution") for f in found):
            continue
        found += family.check(subject)
    if not any(f.severity == "error" for f in found):
        found += _compiled(subject)
    return list(dict.fromkeys(found))


def _compiled(subject: Subject) -> list[Finding]:
    """Report what only rehearse rejects in a distribution."""
    kind = subject.types[0][1] if subject.types else ""
    try:
        compile_distribution(
            subject.job.distribution,
            framework=subject.framework or "pytorch",
            instance_type=kind,
            entry_point=subject.job.entry_point,
            smp_version=subject.smp_version,
        )
    except RequestError as refused:
        return [rules_distribution.REFUSED.finding(refused.message, path="distribution", remedy=refused.remedy or None)]
    return []
