import { LabIcon } from '@jupyterlab/ui-components';

/** A chip with its pins. */
export const gpuIcon = new LabIcon({
  name: 'fakegpu-lab:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M2 4h2v16H2z"/>
    <path fill-rule="evenodd" d="M5 6h17v11H5V6zm6 2.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zm7.5 0H16v6h2.5v-6z"/>
    <path d="M7 18h6v2.5H7z"/>
  </g>
</svg>`
});
