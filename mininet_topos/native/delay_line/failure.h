// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes an error to stderr and ends the program with status 1.
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);
