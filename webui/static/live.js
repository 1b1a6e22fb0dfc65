// Keeps a page up to date: the server sends the HTML of each changed region, and the page replaces it.
"use strict";

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" };
const DAY = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

function ago(date) {
  const seconds = Math.max(0, Math.round((Date.now() - date) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 86400 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} d ago`;
}

const isToday = (date) => date.toDateString() === new Date().toDateString();

function showTimes(within) {
  for (const time of within.querySelectorAll("time[data-form]")) {
    const date = new Date(time.dateTime);
    if (time.dataset.form === "ago") time.textContent = ago(date);
    else if (time.dataset.form === "full") time.textContent = date.toLocaleString(undefined, DAY);
    else if (isToday(date)) time.textContent = date.toLocaleTimeString(undefined, CLOCK);
    else time.textContent = date.toLocaleString(undefined, { ...DAY, ...CLOCK });
  }
}

const FOCUSABLE = "a[href], button, input, select, summary, [tabindex]";

// Replaces a region and restores its opened details, scroll positions and focus.
function replace(region, html) {
  const closed = new Set([...region.querySelectorAll("details[id]:not([open])")].map((one) => one.id));
  const open = new Set([...region.querySelectorAll("details[id][open]")].map((one) => one.id));
  const scrolled = [...region.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  const place = [...region.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  region.innerHTML = html;
  showTimes(region);
  for (const one of region.querySelectorAll("details[id]")) {
    if (closed.has(one.id)) one.open = false;
    if (open.has(one.id)) one.open = true;
  }
  region.querySelectorAll(".scroll").forEach((one, number) => { one.scrollLeft = scrolled[number] || 0; });
  if (place >= 0) region.querySelectorAll(FOCUSABLE)[place]?.focus({ preventScroll: true });
}

function isSelecting(region) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && region.contains(selection.anchorNode);
}

function follow() {
  const liveness = document.getElementById("liveness");
  const trouble = document.getElementById("trouble");
  const say = (state, text) => { liveness.className = state; liveness.textContent = text; };
  const shown = new Map();
  const waiting = new Map();  // a region is not replaced while the viewer selects text in it
  const place = () => {
    let changed = 0;
    for (const [name, html] of waiting) {
      const region = document.getElementById(`region-${name}`);
      if (region && isSelecting(region)) continue;
      waiting.delete(name);
      if (!region || shown.get(name) === html) continue;
      const isNew = shown.has(name);
      shown.set(name, html);
      replace(region, html);
      changed += 1;
      if (isNew && region.classList.contains("card")) {
        region.classList.remove("fresh");
        void region.offsetWidth;
        region.classList.add("fresh");
      }
    }
    if (changed) document.dispatchEvent(new CustomEvent("weir:change"));
  };
  document.addEventListener("selectionchange", place);
  const stream = new EventSource(`/live?page=${encodeURIComponent(location.pathname + location.search)}`);
  stream.addEventListener("open", () => say("on", "Live"));
  stream.addEventListener("error", () => {
    say("off", stream.readyState === EventSource.CLOSED ? "Not live: reload the page" : "Reconnecting");
  });
  stream.addEventListener("change", (event) => {
    const { regions, trouble: problem } = JSON.parse(event.data);
    trouble.hidden = !problem;
    trouble.textContent = problem;
    for (const [name, html] of Object.entries(regions)) waiting.set(name, html);
    place();
  });
  addEventListener("pagehide", () => stream.close());
}

addEventListener("DOMContentLoaded", () => {
  showTimes(document);
  setInterval(() => document.querySelectorAll('time[data-form="ago"]').forEach((time) => { time.textContent = ago(new Date(time.dateTime)); }), 5000);
  if (document.querySelector("main[data-live]")) follow();
});
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
