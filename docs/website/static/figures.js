// Draws the figures of a page (website/figures.py), each when it comes into view.
"use strict";

const draw = (place) => {
  const figure = JSON.parse(place.querySelector("script[type='application/json']").textContent);
  const config = { displaylogo: false, ...figure.config, responsive: true };
  const plot = place.querySelector(".fg-plot");
  const ground = figure.layout?.paper_bgcolor ?? figure.layout?.template?.layout?.paper_bgcolor;
  plot.classList.toggle("fg-white", ground === "white"); // plotly's own: recordings' figures have the page's
  Plotly.newPlot(plot, { ...figure, config });
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
