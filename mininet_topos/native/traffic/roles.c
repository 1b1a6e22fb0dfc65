// SPDX-License-Identifier: Apache-2.0
#include "roles.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "events.h"
#include "options.h"

static void list_roles(const char *program, const struct role *roles, size_t count)
{
	fprintf(stderr, "usage: %s ", program);
	for (size_t i = 0; i < count; i++)
		fprintf(stderr, "%s%s", i ? "|" : "", roles[i].name);
	fputs(" --host NAME --port P ...\n", stderr);
}

// A host may have more connections than the soft limit of descriptors, which is often 1024.
static void allow_all_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int run_role(int argc, char **argv, const struct role *roles, size_t count)
{
	for (size_t i = 0; argc > 1 && i < count; i++)
		if (!strcmp(argv[1], roles[i].name)) {
			allow_all_descriptors();
			parse_options(argc - 1, argv + 1);
			events_init();
			return roles[i].run();
		}
	list_roles(argv[0], roles, count);
	return 2;
}
