// Draws the figures of a page (website/figures.py), each when it comes into view.
"use strict";

const draw = (place) => {
  const figure = JSON.parse(place.querySelector("script[type='application/json']").textContent);
  const config = { displaylogo: false, ...figure.config, responsive: true };
  Plotly.newPlot(place.querySelector(".fg-plot"), { ...figure, config });
};

document.addEventListener("DOMContentLoaded", () => {
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    },
    { rootMargin: "600px" },
  );
  document.querySelectorAll(".fg-figure").forEach((place) => seen.observe(place));
});
