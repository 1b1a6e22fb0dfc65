// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdbool.h>

#include "line.h"

// Writes the counters to stdout, as one line of JSON, and starts the latenesses and stalls anew.
void report_write(struct line *line, bool last);
