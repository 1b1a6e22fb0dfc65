// SPDX-License-Identifier: Apache-2.0
#include "link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

#define MAX_LINE_BYTES 512
#define FIELDS 5

static void set_direction(struct link *link, int which, const char *settings, int from, int to)
{
	struct direction *direction = &link->directions[which];
	const char *error = impairment_parse(settings, &direction->impairment);
	if (error)
		fail("link %s: %s: %s", link->name, settings, error);
	direction->name = which == UP ? "up" : "down";
	direction->from = &link->ports[from];
	direction->to = &link->ports[to];
}

static void open_link(struct link *link, char *line, unsigned ring_frames)
{
	char *fields[FIELDS], *save = NULL;
	for (int i = 0; i < FIELDS; i++)
		if (!(fields[i] = strtok_r(i ? NULL : line, " \t\n", &save)))
			fail("want NAME HOST_INTERFACE SWITCH_INTERFACE UP DOWN in each line of the file");
	snprintf(link->name, sizeof link->name, "%s", fields[0]);
	set_direction(link, UP, fields[3], HOST_SIDE, SWITCH_SIDE);
	set_direction(link, DOWN, fields[4], SWITCH_SIDE, HOST_SIDE);
	port_open(&link->ports[HOST_SIDE], fields[1], ring_frames);
	port_open(&link->ports[SWITCH_SIDE], fields[2], ring_frames);
}

static const char *read_impairments(FILE *file, const struct link *links, size_t count, struct impairment *wanted)
{
	char line[MAX_LINE_BYTES];
	size_t seen = 0;
	for (; fgets(line, sizeof line, file); seen++) {
		char *fields[FIELDS], *save = NULL;
		for (int i = 0; i < FIELDS; i++)
			if (!(fields[i] = strtok_r(i ? NULL : line, " \t\n", &save)))
				return "a line has too few words";
		if (seen == count || strcmp(fields[0], links[seen].name))
			return "it names other links";
		for (int which = 0; which < DIRECTIONS; which++) {
			const char *error =
				impairment_parse(fields[3 + which], &wanted[DIRECTIONS * seen + (size_t)which]);
			if (error)
				return error;
		}
	}
	return seen == count ? NULL : "it names fewer links";
}

const char *links_read_impairments(const char *path, struct link *links, size_t count)
{
	struct impairment *wanted = calloc(DIRECTIONS * count, sizeof *wanted);
	FILE *file = fopen(path, "re");
	const char *error = "it cannot be read";
	if (file && wanted)
		error = read_impairments(file, links, count, wanted);
	for (size_t i = 0; !error && i < count; i++)
		for (int which = 0; which < DIRECTIONS; which++)
			links[i].directions[which].impairment = wanted[DIRECTIONS * i + (size_t)which];
	if (file)
		fclose(file);
	free(wanted);
	return error;
}

static void set_kernel_counts(struct link *link, const char *name, uint64_t received, uint64_t sent)
{
	for (int side = 0; side < SIDES; side++)
		if (!strcmp(link->ports[side].name, name)) {
			link->ports[side].kernel_received = received - link->first_received[side];
			link->ports[side].kernel_sent = sent - link->first_sent[side];
		}
}

void links_read_kernel_counts(struct link *links, size_t count)
{
	char line[MAX_LINE_BYTES], name[64];
	uint64_t received, sent;
	FILE *file = fopen("/proc/net/dev", "re");
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, " %63[^:]: %*u %" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, name, &received,
			   &sent) == 3)
			for (size_t i = 0; i < count; i++)
				set_kernel_counts(&links[i], name, received, sent);
	if (file)
		fclose(file);
}

bool links_exist(const struct link *links, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (int side = 0; side < SIDES; side++)
			if (!port_exists(&links[i].ports[side]))
				return false;
	return true;
}

static void note_first_counts(struct link *links, size_t count)
{
	links_read_kernel_counts(links, count);
	for (size_t i = 0; i < count; i++)
		for (int side = 0; side < SIDES; side++) {
			struct port *port = &links[i].ports[side];
			links[i].first_received[side] = port->kernel_received;
			links[i].first_sent[side] = port->kernel_sent;
			port->kernel_received = port->kernel_sent = 0;
		}
}

static size_t count_lines(FILE *file)
{
	char line[MAX_LINE_BYTES];
	size_t count = 0;
	while (fgets(line, sizeof line, file))
		count++;
	rewind(file);
	return count;
}

struct link *links_open(const char *path, unsigned ring_frames, size_t *count)
{
	char line[MAX_LINE_BYTES];
	FILE *file = fopen(path, "re");
	if (!file)
		fail("%s: %s", path, strerror(errno));
	if (!(*count = count_lines(file)))
		fail("%s names no link", path);
	struct link *links = calloc(*count, sizeof *links);
	if (!links)
		fail("no memory for %zu links", *count);
	for (size_t i = 0; i < *count && fgets(line, sizeof line, file); i++)
		open_link(&links[i], line, ring_frames);
	fclose(file);
	note_first_counts(links, *count);
	return links;
}
