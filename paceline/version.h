// The version of Paceline: semantic versioning (CHANGELOG.md). While the major number is 0, a new minor number may change what is public.
#pragma once

#define PACELINE_VERSION_MAJOR 0
#define PACELINE_VERSION_MINOR 2
#define PACELINE_VERSION_PATCH 0
#define PACELINE_VERSION "0.2.0"
