// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("weir-delay-line: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}
