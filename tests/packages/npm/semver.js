import semver from "semver";
export default () => [semver.satisfies("1.2.3", "^1.0.0 || >=3"), semver.inc("1.2.3-rc.1", "prerelease"), semver.maxSatisfying(["1.1.0", "1.9.2", "2.0.0"], "1.x"), semver.coerce("v2.3-beta").version, semver.rsort(["1.0.0", "1.0.0-a", "2.0.0"])];
