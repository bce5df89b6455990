"use strict";
/* The theme of Airflow around this page, links into it, and parts that take longer. Without
   scripts the page works too: the parts are links then. */
(() => {
  const framed = window.parent !== window;
  const root = document.documentElement;

  const airflow = () => {
    try {
      return framed ? window.parent.document.documentElement : null;
    } catch {
      return null; // Another site's frame, which the server does not allow anyway.
    }
  };

  const takeTheme = () => {
    const outside = airflow();
    let theme = null;
    if (outside) {
      theme = outside.classList.contains("dark") ? "dark" : outside.classList.contains("light") ? "light" : null;
    } else {
      theme = localStorage.getItem("theme");
    }
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  takeTheme();
  if (airflow()) {
    new window.parent.MutationObserver(takeTheme).observe(airflow(), { attributes: true, attributeFilter: ["class"] });
  }

  // Airflow's frame may not be left by a link: its own router is told where to go.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    if ("reload" in link.dataset) {
      event.preventDefault();
      location.reload();
    } else if ("airflow" in link.dataset && airflow()) {
      event.preventDefault();
      window.parent.history.pushState(null, "", link.href);
      window.parent.dispatchEvent(new window.parent.PopStateEvent("popstate", { state: null }));
    }
  });

  const fill = async (place) => {
    try {
      const answer = await fetch(place.dataset.part, { headers: { Accept: "text/html" } });
      const text = await answer.text();
      if (answer.ok) {
        place.innerHTML = text;
      } else {
        const said = new DOMParser().parseFromString(text, "text/html").querySelector(".verdict p");
        const line = place.querySelector("td:last-child, p") || place;
        line.textContent = said ? said.textContent : `The server answered ${answer.status}.`;
      }
    } catch (error) {
      const line = place.querySelector("td:last-child, p") || place;
      line.textContent = `Airflow did not answer: ${error.message}.`;
    }
    place.dataset.filled = "true";
  };
  const places = [...document.querySelectorAll("[data-part]")];
  const next = () => {
    const place = places.shift();
    if (place) fill(place).then(next);
  };
  for (let i = 0; i < 3; i += 1) next();
})();
