"""The interpreter and its virtual environment."""

import json


def test_version(python, plan):
    version = python("import sys; print('%d.%d' % sys.version_info[:2])")
    assert version == plan["python"]


def test_virtual_environment(python):
    facts = json.loads(
        python("import json, site, sys; print(json.dumps([sys.prefix, sys.base_prefix, site.ENABLE_USER_SITE]))")
    )
    assert facts[0] != facts[1], "packages would go into the distribution's own Python"


def test_standard_library_is_whole(python):
    # Distributions split these off, and people find out in a job.
    python("import bz2, ctypes, curses, hashlib, lzma, multiprocessing.synchronize, sqlite3, ssl, venv, zlib")


def test_processes_can_share_memory(python):
    script = """
import multiprocessing as mp
def work(queue):
    queue.put(sum(range(10)))
if __name__ == "__main__":
    context = mp.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get(timeout=30))
    process.join()
"""
    assert python(script) == "45"


def test_text_is_utf_8(python):
    assert (
        python("import locale, sys; print(locale.getpreferredencoding(False).lower(), sys.stdout.encoding)")
        == "utf-8 utf-8"
    )


def test_byte_code_can_be_written_nowhere_harmful(host):
    assert host.file("/opt/venv").mode & 0o022 == 0
