// SPDX-License-Identifier: Apache-2.0
// Reports that an interface of this network namespace was removed (rtnetlink(7)). A packet socket does not suffice: it
// has an error when its interface goes down, but none if the interface is removed after that.
#pragma once
#include <stdbool.h>

// Returns a file descriptor that is readable after a change of an interface. Ends the program if that fails.
int removal_watch(void);

// Reads all changes. Returns whether an interface may have been removed.
bool removal_read(int fd);
