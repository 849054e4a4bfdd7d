"""Marks a wheel that contains libtruce as one for this platform and for all versions of Python 3."""
from pathlib import Path

from setuptools import setup
from setuptools.dist import Distribution
from wheel.bdist_wheel import bdist_wheel

HAS_LIBRARY = Path(__file__).with_name("truce").joinpath("libtruce.so.0").exists()


class Package(Distribution):
    def has_ext_modules(self):
        return HAS_LIBRARY


class Wheel(bdist_wheel):
    def get_tag(self):
        python, abi, platform = super().get_tag()
        return ("py3", "none", platform) if HAS_LIBRARY else (python, abi, platform)


setup(distclass=Package, cmdclass={"bdist_wheel": Wheel})
