"""Puts the C++ writer, where the source tree has built it, into the installed package."""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

BUILT = pathlib.Path(__file__).resolve().parents[2] / "build" / "lib" / "capture"


class WithWriter(build_py):
    def run(self):
        super().run()
        if BUILT.is_dir():
            shutil.copytree(
                BUILT, pathlib.Path(self.build_lib, "stallcast_capture"), dirs_exist_ok=True
            )


class OfThisMachine(Distribution):
    def has_ext_modules(self):
        return BUILT.is_dir()


setup(cmdclass={"build_py": WithWriter}, distclass=OfThisMachine)
