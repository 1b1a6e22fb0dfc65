// SPDX-License-Identifier: Apache-2.0
// Flows that start at a given time, each on a connection of its own, and are sampled while they last: the flows of a
// plan, and the one endless flow of a source. A flow is complete when its peer has read all of it and has closed; an
// endless one lasts until SIGTERM.
#include "flows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events.h"
#include "options.h"
#include "records.h"
#include "roles.h"
#include "transport.h"

#define UNSENT_MS 50 // for how long they last at the flow's rate
#define LEAST_UNSENT_BYTES (128 * 1024)
#define MS_PER_S 1000u

static void flow_report(const char *event, const struct flow *f)
{
	record_begin(event);
	record_put(",\"flow\":%u,\"endless\":%s,\"peer\":\"%s\"", f->number, f->to_send == ENDLESS ? "true" : "false",
		   f->peer);
	transport_put_figures(f);
	record_end();
}

bool flow_is_open(const struct flow *f)
{
	return f->state == FLOW_SENDING || f->state == FLOW_FINISHING;
}

void flow_connected(struct flow *f)
{
	f->state = FLOW_SENDING;
	flow_report("connected", f);
}

bool flow_take(struct flow *f, uint64_t bytes)
{
	f->taken_bytes += bytes;
	if (f->to_send == ENDLESS)
		return false;
	f->to_send -= bytes;
	if (f->to_send)
		return false;
	f->state = FLOW_FINISHING;
	return true;
}

uint64_t flow_most_unsent_bytes(void)
{
	uint64_t bytes = options.rate_bps / 8 * UNSENT_MS / MS_PER_S;
	return bytes > LEAST_UNSENT_BYTES ? bytes : LEAST_UNSENT_BYTES;
}

void flow_complete(struct flow *f, uint64_t now)
{
	record_begin("flow");
	record_put(",\"flow\":%u,\"fct_ms\":%.3f", f->number, (double)(now - f->start_ns) / NS_PER_MS);
	transport_put_figures(f);
	record_end();
	f->state = FLOW_DONE;
}

static void flow_start(struct flow *f)
{
	f->start_ns = now_ns();
	transport_connect(f);
	f->state = FLOW_CONNECTING;
}

static void flow_stop(struct flow *f)
{
	flow_report("closed", f);
	transport_finish(f);
}

// Starts the flows that are due. Returns when the next one is.
static uint64_t start_due_flows(struct flow *flows, uint32_t count, uint64_t now)
{
	uint64_t next_ns = UINT64_MAX;
	for (uint32_t i = 0; i < count; i++)
		if (flows[i].state == FLOW_WAITING) {
			if (flows[i].start_ns <= now)
				flow_start(&flows[i]);
			else if (flows[i].start_ns < next_ns)
				next_ns = flows[i].start_ns;
		}
	return next_ns;
}

static uint32_t count_unfinished(const struct flow *flows, uint32_t count)
{
	uint32_t unfinished = 0;
	for (uint32_t i = 0; i < count; i++)
		unfinished += flows[i].state != FLOW_DONE;
	return unfinished;
}

static void sample_open_flows(const struct flow *flows, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (flow_is_open(&flows[i]))
			flow_report("sample", &flows[i]);
}

static int run_until_done(struct flow *flows, uint32_t count)
{
	struct epoll_event events[MAX_EVENTS];
	uint64_t sample_ns = now_ns();
	while (count_unfinished(flows, count)) {
		uint64_t now = now_ns(), next_ns = start_due_flows(flows, count, now);
		if (now >= sample_ns) {
			sample_open_flows(flows, count);
			sample_ns += options.sample_ms * NS_PER_MS;
		}
		if (next_ns > sample_ns)
			next_ns = sample_ns;
		int ready = events_wait(events, next_ns > now ? (int)((next_ns - now) / NS_PER_MS) + 1 : 0);
		if (ready < 0)
			break;
		for (int i = 0; i < ready; i++)
			transport_advance(&events[i]);
	}
	for (uint32_t i = 0; i < count; i++)
		if (flow_is_open(&flows[i]))
			flow_stop(&flows[i]);
	record_begin("done");
	record_end();
	return 0;
}

// The flows of this host: the lines `host start_us address size_bytes deadline_us` of the plan that begin with its
// name.
static struct flow *read_plan(uint32_t *count)
{
	FILE *plan = fopen(options.plan, "r");
	struct flow *flows = NULL;
	char line[160], host[48];
	uint32_t n = 0;
	if (!plan)
		fail("cannot read the plan %.80s: %s", options.plan, strerror(errno));
	for (uint32_t number = 0; fgets(line, sizeof line, plan); number++) {
		struct flow f = {.number = number};
		uint64_t start_us;
		if (sscanf(line, "%47s %" SCNu64 " %63s %" SCNu64 " %" SCNu64, host, &start_us, f.peer, &f.to_send,
			   &f.deadline_us) != 5)
			fail("line %u of the plan: want host start_us address size_bytes deadline_us", number + 1);
		if (strcmp(host, options.host))
			continue;
		f.start_ns = options.start_ns + start_us * NS_PER_US;
		flows = realloc(flows, (n + 1) * sizeof *flows);
		if (!flows)
			fail("out of memory");
		flows[n++] = f;
	}
	fclose(plan);
	*count = n;
	return flows;
}

int run_flows(void)
{
	uint32_t count;
	if (!options.plan)
		fail("flows needs --plan FILE");
	struct flow *flows = read_plan(&count);
	return run_until_done(flows, count);
}

int run_source(void)
{
	struct flow endless = {.start_ns = now_ns(), .to_send = ENDLESS};
	if (!options.destination)
		fail("source needs --to ADDRESS");
	snprintf(endless.peer, sizeof endless.peer, "%s", options.destination);
	return run_until_done(&endless, 1);
}
