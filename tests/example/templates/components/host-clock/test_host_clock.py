"""The example's program, in the image."""


def test_resolution_is_a_number_of_nanoseconds(host):
    assert int(host.check_output("host-clock")) > 0


def test_environment_of_the_component_is_set(host):
    assert host.check_output("printenv HOST_CLOCK") == "monotonic"


def test_compiler_stayed_in_its_stage(host):
    assert not host.exists("gcc")
