from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version


def use():
    need = Requirement('pip[x]>=1.0,<3; python_version > "2"')
    return [str(need), Version("2.0rc1") in SpecifierSet(">=1.0", prereleases=True), str(max(map(Version, ["1.9", "1.10", "1.10.post1"]))), need.marker.evaluate()]
