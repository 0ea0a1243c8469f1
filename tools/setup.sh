#!/bin/sh
# Installs what the lessons need and what is not there yet, on Debian and Ubuntu:
#
#     sh tools/setup.sh
#
# g++, cmake, make and python3 are needed. libboost-context-dev is optional: with it the CPU runs
# kernels faster. It is left alone where nothing else is missing and installing would need sudo.
set -eu

missing=""
for pair in g++:g++ cmake:cmake make:make python3:python3; do
  if ! command -v "${pair%%:*}" >/dev/null 2>&1; then
    missing="$missing ${pair##*:}"
  fi
done

optional=""
if [ ! -e /usr/include/boost/context/fiber.hpp ]; then
  optional="libboost-context-dev"
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  as_root="sudo"
fi

if [ -z "$missing" ] && { [ -z "$optional" ] || [ -n "$as_root" ]; }; then
  echo "setup: everything that is needed is installed"
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
  if [ -z "$missing" ]; then
    echo "setup: everything that is needed is installed"
    exit 0
  fi
  echo "setup: there is no apt-get here; install by other means:$missing" >&2
  exit 1
fi
if [ -n "$as_root" ] && ! command -v sudo >/dev/null 2>&1; then
  echo "setup: there is no sudo; as root: apt-get install$missing" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
if [ -n "$missing" ]; then
  echo "setup: installing$missing${optional:+ $optional}"
  $as_root apt-get update -qq
  # shellcheck disable=SC2086  # The lists are meant to be split into words.
  $as_root apt-get install -qq -y --no-install-recommends $missing >/dev/null
fi
if [ -n "$optional" ]; then
  # The lists of packages may be missing too, as in a fresh container.
  $as_root apt-get install -qq -y --no-install-recommends $optional >/dev/null 2>&1 ||
    { $as_root apt-get update -qq &&
      $as_root apt-get install -qq -y --no-install-recommends $optional >/dev/null 2>&1; } ||
    echo "setup: $optional could not be installed; the lessons run without it"
fi
echo "setup: done"
