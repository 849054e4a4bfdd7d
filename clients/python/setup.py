"""
Adds the blocking forms of the modules to the package. A wheel that contains libtruce is for this
platform and for all versions of Python 3.
"""
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution
from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
HAS_LIBRARY = (HERE / "truce" / "libtruce.so.0").exists()

sys.path.insert(0, str(HERE))
from blocking import write_blocking  # noqa: E402


class Modules(build_py):
    def run(self):
        super().run()
        write_blocking(HERE / "truce" if self.editable_mode else Path(self.build_lib, "truce"))


class Package(Distribution):
    def has_ext_modules(self):
        return HAS_LIBRARY


class Wheel(bdist_wheel):
    def get_tag(self):
        python, abi, platform = super().get_tag()
        return ("py3", "none", platform) if HAS_LIBRARY else (python, abi, platform)


setup(distclass=Package, cmdclass={"build_py": Modules, "bdist_wheel": Wheel})
